package ovs

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Cookie marks the agent's flows: "ovnebpf" in ASCII.
const Cookie = "0x6f766e65627066"

// GatewayFlows returns the static flows of the gateway bridge in layout
// direct, in the spelling of ovs-ofctl dump-flows, sorted. They name no port
// number, so they outlive a patch port that is made anew. encap is the address
// that the userspace datapath tunnels from; on the kernel datapath it is the
// zero Addr.
func GatewayFlows(encap netip.Addr) []string {
	flows := []string{
		"priority=100,in_port=LOCAL actions=ALL",
		"priority=0 actions=LOCAL",
	}
	switch {
	case encap.Is4():
		// No looser ARP match: it storms.
		flows = append(flows,
			"priority=200,udp,in_port=LOCAL,tp_dst=6081 actions=IN_PORT",
			"priority=200,arp,in_port=LOCAL,arp_spa="+encap.String()+" actions=IN_PORT",
			"priority=200,arp,in_port=LOCAL,arp_tpa="+encap.String()+",arp_op=2 actions=IN_PORT")
	case encap.Is6():
		flows = append(flows,
			"priority=200,udp6,in_port=LOCAL,tp_dst=6081 actions=IN_PORT",
			"priority=200,icmp6,in_port=LOCAL,ipv6_src="+encap.String()+",icmp_type=135,icmp_code=0 actions=IN_PORT",
			"priority=200,icmp6,in_port=LOCAL,ipv6_src="+encap.String()+",icmp_type=136,icmp_code=0 actions=IN_PORT",
			"priority=200,icmp6,in_port=LOCAL,ipv6_dst="+encap.String()+",icmp_type=136,icmp_code=0 actions=IN_PORT")
	}
	slices.Sort(flows)
	return flows
}

// SyncFlows makes the flows of our cookie on the bridge exactly want, in one
// OpenFlow bundle, and reports whether anything had to change. Flows of other
// cookies stay. rundir holds the bridge's .mgmt socket.
func SyncFlows(ctx context.Context, rundir, bridge string, want []string) (changed bool, err error) {
	target := "unix:" + filepath.Join(rundir, bridge+".mgmt")
	out, err := ofctl(ctx, nil, "--no-stats", "dump-flows", target, "cookie="+Cookie+"/-1")
	if err != nil {
		return false, fmt.Errorf("read flows of %s: %w", bridge, err)
	}
	if slices.Equal(parseFlows(out), want) {
		return false, nil
	}
	if _, err := ofctl(ctx, []byte(bundle(want)), "--bundle", "add-flows", target, "-"); err != nil {
		return false, fmt.Errorf("write flows of %s: %w", bridge, err)
	}
	return true, nil
}

// bundle deletes the flows of our cookie and adds want. A switch applies it at
// once: no packet sees the state between.
func bundle(want []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "delete cookie=%s/-1\n", Cookie)
	for _, f := range want {
		fmt.Fprintf(&b, "add cookie=%s,%s\n", Cookie, strings.Replace(f, " actions=", ",actions=", 1))
	}
	return b.String()
}

// parseFlows returns the flows of a dump without cookie and table, sorted.
func parseFlows(dump []byte) []string {
	var flows []string
	for line := range strings.Lines(string(dump)) {
		line = strings.TrimSpace(line)
		_, rest, ok := strings.Cut(line, "cookie="+Cookie+", ")
		if !ok {
			continue
		}
		rest = strings.TrimPrefix(rest, "table=0, ")
		flows = append(flows, strings.TrimPrefix(rest, "table=0,"))
	}
	slices.Sort(flows)
	return flows
}

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
