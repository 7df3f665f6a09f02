package ovs

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// This file is about two kinds of neighbours: those to which the userspace datapath sends tunnel
// packets, which it resolves itself (TunnelNeighbours), and those of OVN's logical routers
// (RouterNeighbour).

// TunnelPeers returns the remote ends of ovn-controller's tunnels: the encap address of each other
// node, as in the southbound database.
func (c *Client) TunnelPeers(ctx context.Context) ([]netip.Addr, error) {
	tunnels, err := rows(ctx, c, "tunnels", func(i *vswitch.Interface) bool { return i.Type == "geneve" })
	if err != nil {
		return nil, err
	}

	var out []netip.Addr

	for _, i := range tunnels {
		// "flow" is a tunnel without a fixed peer.
		if a, err := netip.ParseAddr(i.Options["remote_ip"]); err == nil {
			out = append(out, a.Unmap())
		}
	}

	return out, nil
}

// TunnelNeighbours returns the link-layer addresses of the neighbours that the userspace datapath
// knows. The datapath drops packets that it would send through a tunnel to another neighbour.
func TunnelNeighbours(ctx context.Context, rundir string) (map[netip.Addr]net.HardwareAddr, error) {
	reply, err := askSwitch(ctx, rundir, "tnl/neigh/show")
	if err != nil {
		return nil, fmt.Errorf("read tunnel neighbours: %w", err)
	}

	return parseTunnelNeighbours(reply), nil
}

// SetTunnelNeighbour sets the link-layer address that the userspace datapath has for a neighbour,
// which it reaches through the bridge. The entry expires like a learned one.
func SetTunnelNeighbour(
	ctx context.Context,
	rundir, bridge string,
	a netip.Addr,
	mac net.HardwareAddr,
) error {
	if _, err := askSwitch(ctx, rundir, "tnl/neigh/set", bridge, a.String(), mac.String()); err != nil {
		return fmt.Errorf("set tunnel neighbour %s: %w", a, err)
	}

	return nil
}

// parseTunnelNeighbours reads lines of an address, a MAC and a bridge. A fourth word, STALE, marks
// an entry that is not used any more.
func parseTunnelNeighbours(reply string) map[netip.Addr]net.HardwareAddr {
	out := map[netip.Addr]net.HardwareAddr{}

	for line := range strings.Lines(reply) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}

		a, err1 := netip.ParseAddr(f[0])
		mac, err2 := net.ParseMAC(f[1])

		if err1 == nil && err2 == nil {
			out[a.Unmap()] = mac
		}
	}

	return out
}

// RouterNeighbour returns the link-layer address that a logical router on this node has for a
// neighbour, from ovn-controller's flow for it. Without such a flow it returns nil.
//
// The flow matches the registers with the next hop and sets the Ethernet destination. Its table's
// number depends on the release of OVN (66 in 23.03). So RouterNeighbour finds the flow by its
// actions: other flows for the next hop continue in another table.
func RouterNeighbour(ctx context.Context, rundir string, a netip.Addr) (net.HardwareAddr, error) {
	for _, match := range nextHopMatches(a) {
		out, err := ofctl(ctx, nil, "dump-flows", bridgeTarget(rundir, IntegrationBridge), match)
		if err != nil {
			return nil, fmt.Errorf("read neighbours of logical routers: %w", err)
		}

		for flow := range strings.Lines(string(out)) {
			_, actions, _ := strings.Cut(flow, "actions=")
			if mac := destination(actions); mac != nil && !strings.Contains(actions, "resubmit") {
				return mac, nil
			}
		}
	}

	return nil, nil
}

// destination returns the link-layer address that the actions of a flow set as destination, or nil.
// The action is mod_dl_dst:MAC or set_field:MAC->eth_dst, depending on the version of OpenFlow.
func destination(actions string) net.HardwareAddr {
	for action := range strings.SplitSeq(strings.TrimSpace(actions), ",") {
		text, sets := strings.CutPrefix(action, "mod_dl_dst:")
		if !sets {
			if text, sets = strings.CutSuffix(action, "->eth_dst"); sets {
				text = strings.TrimPrefix(text, "set_field:")
			}
		}

		if mac, err := net.ParseMAC(text); sets && err == nil {
			return mac
		}
	}

	return nil
}

// nextHopMatches returns matches of the registers in which releases of OVN keep a packet's next
// hop: of IPv4 the first one, of IPv6 the first four, or since 25.03 the second four.
func nextHopMatches(a netip.Addr) []string {
	var hop [2][]string

	b := a.AsSlice()
	for i := 0; i < len(b); i += 4 {
		for half := range hop {
			hop[half] = append(hop[half],
				fmt.Sprintf("reg%d=0x%x", 4*half+i/4, binary.BigEndian.Uint32(b[i:])))
		}
	}

	if a.Is4() {
		return []string{hop[0][0]}
	}

	return []string{strings.Join(hop[0], ","), strings.Join(hop[1], ",")}
}
