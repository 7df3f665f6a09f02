package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// A node without a gateway (Cluster.None): nothing of ours is on its uplink, no
// port is reserved, and its host's sockets reach Services all the same. What an earlier
// agent had there as a gateway goes. On the userspace datapath the wiring of
// layout direct stays, for the tunnels need it; OVN is not connected to it.

// bare reports whether layout and backend have no part in the node.
func (s Settings) bare() bool { return s.None && !s.Userspace() }

// settle ends what a move has left unfinished, and returns where the host's addresses are: on the
// uplink, or on the bridge if an operator has moved them there. taken: an agent in layout bridged
// has moved them to the bridge, which they must leave. It returns nicbridge.ErrUnderWay (wrapped)
// during a move.
func (t *topology) settle(ctx context.Context) (at Settings, taken bool, err error) {
	if _, err := nicbridge.Load(t.s.RunDir, t.s.Uplink); errors.Is(err, fs.ErrNotExist) {
		return t.s, false, nil
	}
	if err := Recover(ctx, t.s, t.ovs); err != nil {
		return t.s, false, err
	}
	snapshot, err := nicbridge.Load(t.s.RunDir, t.s.Uplink)
	switch {
	case err != nil || snapshot.Phase != nicbridge.Done:
		return t.s, false, err
	case snapshot.Asked && snapshot.Bridge == t.s.Bridge:
		return t.s.placed(Bridged), false, nil
	}
	return t.s, true, nil
}

// dropBridge removes the gateway bridge if it is one of ours.
func (t *topology) dropBridge(ctx context.Context, h Host) error {
	if h.Bridge == nil {
		return nil
	}
	err := t.ovs.CheckGateway(ctx, t.s.Uplink, t.s.Bridge)
	if errors.Is(err, ovs.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	was := t.s
	was.None = false
	// A move that begins after this makes the bridge again.
	return nicbridge.Undisturbed(t.s.RunDir, t.s.Uplink, func() error {
		if s, err := nicbridge.Load(t.s.RunDir, t.s.Uplink); err == nil && s.Phase != nicbridge.Restored {
			return fmt.Errorf("remove bridge %s: %w", t.s.Bridge, nicbridge.ErrUnderWay)
		}
		if err := link.RemoveHairpin(t.s.Bridge, hostHairpin(bothFamilies, was)); err != nil {
			return err
		}
		return t.ovs.RemoveBridge(ctx, t.s.Bridge)
	})
}

// mapping is the bridge that OVN's physical network is on.
func (s Settings) mapping() string {
	if s.None {
		return ""
	}
	return s.Bridge
}
