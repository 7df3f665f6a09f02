package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestGatewayVLAN: on the nodes' network, only the gateway bridge adds the VLAN tag; layout
// bridged, both backends. Untagged packets get no reply.
func TestGatewayVLAN(t *testing.T) {
	needsLink(t, "8021q", func(parent int) netlink.Link {
		return &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "probe", ParentIndex: parent}, VlanId: 5}
	})

	for _, backend := range []string{"ebpf", "openflow"} {
		t.Run(backend, func(t *testing.T) {
			c := start(t, lab.Options{AgentArgs: []string{"--gateway-layout=bridged", "--gateway-vlanid=100", "--gateway-backend=" + backend}})
			testSomePaths(t, c, tagged...)

			for _, f := range []struct {
				name string
				run  func(*testing.T, *Cluster)
			}{
				{"ICMP port unreachable", testUnreachable},
				{"ping of 4000 bytes", testLarge},
				{"fragments, the last one first", testEarlyFragments},
				{"IPv6 with extension headers", testExtensions},
				{"every frame has the tag", testEveryTag},
				{"vswitchd restarted", testTaggedRestart},
			} {
				t.Run(f.name, func(t *testing.T) { f.run(t, c) })
			}
		})
	}
}

// tagged are paths on which a tag is added, removed or kept, besides those of kindPaths.
var tagged = []string{
	"pod to its own node", "pod to another node", "pod to a NodePort of another node", "host to pod on another node",
	"outside to a host behind its own NodePort", "outside to a local NodePort", "outside to an announced address",
	"host to cluster IP", "host to its own NodePort", "host to another's NodePort",
}

// testEveryTag: all packets of a node on the wire have exactly one tag, whatever their sender.
func testEveryTag(t *testing.T, c *Cluster) {
	seen := c.run(t, "capture", "node1", "tcpdump", "-nne", "-c", "200", "-Q", "out", "-i", lab.UplinkPlain)
	for !seen.ended() {
		for _, v6 := range []bool{false, true} {
			c.answers(t, "node1", "ext", "tcp", port(outside(v6), outsidePort))
			c.answers(t, host("a"), "ext", "tcp", port(outside(v6), outsidePort))
			c.answers(t, host("a"), "c", "tcp", port(c.pod("c")(v6), podPort))
			c.answers(t, "ext", "a,c", "tcp", port(c.gateway(1)(v6), nodePort))
		}

		if t.Failed() {
			return
		}
	}

	for line := range strings.Lines(seen.wait(t)) {
		if strings.Count(line, "802.1Q") != 1 || strings.Count(line, "vlan 100,") != 1 {
			t.Errorf("on the wire: %s", line)
		}
	}
}

// testTaggedRestart: the host's connection survives while the bridge has no flows, as the bridge's
// port adds the tag. With programs, a pod's connection survives, too; without them, the standalone
// bridge passes OVN's packets to the host.
func testTaggedRestart(t *testing.T, c *Cluster) {
	lasting := []*background{c.hold(t, "host connection", "ext", port(c.node(1)(false), sshPort), 20*time.Second, "-timeout", "30s")}
	if !c.flows {
		lasting = append(lasting, c.hold(t, "pod to outside", host("a"), port(outside(false), outsidePort), 20*time.Second, "-timeout", "30s"))
	}

	time.Sleep(time.Second) // time to establish them

	if err := c.StopVswitchd(1); err != nil {
		t.Fatal(err)
	}

	if err := c.StartVswitchd(1); err != nil {
		t.Fatal(err)
	}

	for _, b := range lasting {
		b.held(t)
	}

	for _, v6 := range []bool{false, true} {
		within(t, "outside to host", func() error { return c.ask(t, "ext", port(c.node(1)(v6), sshPort)) })
		within(t, "outside to NodePort", func() error { return c.ask(t, "ext", port(c.gateway(1)(v6), nodePort)) })
	}
}
