package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestUplinks tests gateways on uplinks that are not a single Ethernet device.
func TestUplinks(t *testing.T) {
	t.Run("VLAN uplink", func(t *testing.T) {
		needsLink(t, "8021q", func(parent int) netlink.Link {
			return &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "probe", ParentIndex: parent}, VlanId: 5}
		})
		c := start(t, lab.Options{Uplink: lab.UplinkVLAN})
		testSomePaths(t, c)
	})
	t.Run("bond failover with a new MAC", func(t *testing.T) {
		needsLink(t, "bonding", func(int) netlink.Link { return netlink.NewLinkBond(netlink.LinkAttrs{Name: "probe"}) })
		c := start(t, lab.Options{Uplink: lab.UplinkBond})
		testSomePaths(t, c)
		testFailover(t, c)
	})
}

// needsLink skips the test if the kernel cannot create such a link.
func needsLink(t *testing.T, module string, link func(parent int) netlink.Link) {
	t.Helper()

	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}

	defer h.Close()

	parent := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "e2e-probe"}, PeerName: "e2e-probe2"} // loopback takes no VLAN
	if err := h.LinkAdd(parent); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.LinkDel(parent) }()

	probe := link(parent.Attrs().Index)
	if err := h.LinkAdd(probe); err != nil && strings.Contains(err.Error(), "not supported") {
		t.Skipf("this kernel has no %s: %v", module, err)
	}

	_ = h.LinkDel(probe)
}

// kindPaths lists one path of each kind. The endpoints of the NodePort are on both nodes.
func kindPaths() []string {
	return []string{
		"pod to pod, across nodes", "pod to outside", "outside to a NodePort of node1", "host to outside", "host to host",
		"host to cluster IP", "outside to host, port 22",
	}
}

// testSomePaths runs one path of each kind, and the named ones.
func testSomePaths(t *testing.T, c *Cluster, more ...string) {
	t.Helper()

	some := append(kindPaths(), more...)
	for _, p := range c.Paths() {
		if slices.Contains(some, p.Name) {
			t.Run(p.Name, func(t *testing.T) { testPath(t, c, p) })
		}
	}
}

// testFailover: the active device loses its carrier. The bond continues with the other device and
// its MAC, and so does the gateway router.
func testFailover(t *testing.T, c *Cluster) {
	mac := func() string {
		_, rest, _ := strings.Cut(c.execute(t, "node1", "ip", "-o", "link", "show", lab.UplinkBond), "link/ether ")
		address, _, _ := strings.Cut(rest, " ")

		return address
	}
	before := mac()
	live := c.hold(t, "host connection", "ext", port(c.node(1)(false), sshPort), 20*time.Second)
	pod := c.hold(t, "pod to outside", host("a"), port(outside(false), outsidePort), 20*time.Second)

	c.execute(t, "central", "ip", "link", "set", "node1", "down")
	defer c.execute(t, "central", "ip", "link", "set", "node1", "up")

	within(t, "failover", func() error {
		if now := mac(); now == before {
			return fmt.Errorf("the MAC is still %s", now)
		}

		return nil
	})

	for _, v6 := range []bool{false, true} {
		within(t, "outside to host", func() error { return c.ask(t, "ext", port(c.node(1)(v6), sshPort)) })
		within(t, "pod to outside", func() error { return c.ask(t, host("a"), port(outside(v6), outsidePort)) })
		within(t, "outside to NodePort", func() error { return c.ask(t, "ext", port(c.gateway(1)(v6), nodePort)) })
	}

	live.held(t)
	pod.held(t)
}
