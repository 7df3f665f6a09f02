package ovs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// Cookie is the cookie of the agent's flows: "ovnebpf" in ASCII. The byte before it is the flow's
// number, by which FlowCounts sums counts; 0 means none.
const (
	Cookie     = "0x6f766e65627066"
	CookieMask = "0xffffffffffffff"

	cookieBits = 0x6f766e65627066
	cookieMask = 1<<numberAt - 1
	numberAt   = 56 // bits
)

// FlowNumber returns the number in a cookie, given in OVS' format. ours reports whether it is a
// cookie of the agent.
func FlowNumber(cookie string) (number uint8, ours bool) {
	n, err := strconv.ParseUint(cookie, 0, 64)
	return uint8(n >> numberAt), err == nil && n&cookieMask == cookieBits
}

func numbered(number uint8) uint64 { return uint64(number)<<numberAt | cookieBits }

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
