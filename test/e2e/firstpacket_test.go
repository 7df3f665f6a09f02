package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// testFirstPackets: in a new cluster, without earlier traffic to other nodes or outside, no pod
// packet is lost to an unresolved neighbour.
func testFirstPackets(t *testing.T, c *Cluster) {
	for i, n := range c.Nodes() {
		if c.Datapath() == ovs.DatapathNetdev {
			within(t, n.Name+" knows the other end of its tunnel", func() error {
				known, err := ovs.TunnelNeighbours(t.Context(), n.RunDir)

				other := c.Node(2 - i).Encap
				if c.layout == bridged { // tunnels end at the node's own address
					other = c.Node(2 - i).IP4
				}

				if err == nil && known[other] == nil {
					err = fmt.Errorf("%s is not among %v", other, known)
				}

				return err
			})
		}

		for _, v6 := range []bool{false, true} {
			within(t, n.Name+": the gateway router knows its next hop", func() error {
				known, err := ovs.RouterNeighbour(t.Context(), n.RunDir, outside(v6))
				if err == nil && known == nil {
					err = fmt.Errorf("%s is not known", outside(v6))
				}

				return err
			})
		}
	}

	for _, to := range []func(bool) netip.Addr{c.pod("c"), outside} {
		for _, v6 := range []bool{false, true} {
			// The first packet is alone, until Open vSwitch has flows for it: of packets that it processes at
			// the same time, before the connection is in the kernel's conntrack, one gets there, and the
			// kernel drops the others of ICMP (insert_failed and drop in /proc/net/stat/nf_conntrack).
			c.ping(t, "the first to "+to(v6).String(), host("a"), to(v6), "-c", "1").pinged(t, 1)
			c.ping(t, "to "+to(v6).String(), host("a"), to(v6), "-c", "50", "-i", "0.01").pinged(t, 50)
		}
	}
}
