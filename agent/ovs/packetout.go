package ovs

import (
	"context"
	"encoding/hex"
	"fmt"
)

// SendTo sends a frame to a port of a bridge, given by name or number, as if the bridge had
// forwarded it there.
func SendTo(ctx context.Context, rundir, bridge, port string, frame []byte) error {
	packet := fmt.Sprintf("in_port=LOCAL,packet=%s,actions=output:%s", hex.EncodeToString(frame), port)

	if _, err := ofctl(ctx, nil, "packet-out", bridgeTarget(rundir, bridge), packet); err != nil {
		return fmt.Errorf("send a packet to port %s of %s: %w", port, bridge, err)
	}

	return nil
}
