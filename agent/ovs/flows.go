package ovs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// Cookie marks the agent's flows: "ovnebpf" in ASCII.
const Cookie = "0x6f766e65627066"

func ofctl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "ovs-ofctl", append([]string{"-O", "OpenFlow14", "--timeout=10"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ovs-ofctl: %w: %s", err, firstLine(stderr.Bytes()))
	}
	return out, nil
}
