package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testLargeService: a tenant creates a Service with 900 endpoints. Then an administrator lists the
// OpenFlow groups of every node, as support tools do. ovs-vswitchd runs on, and the Service is
// served.
func testLargeService(t *testing.T, c *Cluster) {
	daemons := c.vswitchds(t)
	defer c.staysReady(t)()

	endpoints := c.addressesOutside(t, 900)
	c.isHealthy(t)

	c.tempService(t, lab.ServiceSpec{Name: "large", Ports: servicePorts(outsidePort, 0), Others: endpoints})

	answered := func() {
		t.Helper()

		for _, on := range []string{host("a"), "node1"} {
			for _, v6 := range []bool{false, true} {
				within(t, "the Service, from "+on, func() error {
					return c.isServedBy(t, on, "ext", port(c.cluster("large")(v6), servicePort))
				})
			}
		}
	}
	answered()

	for _, n := range c.Nodes() {
		for _, version := range []string{"OpenFlow10", "OpenFlow14", "OpenFlow15"} {
			groups := c.execute(t, n.Name, "ovs-ofctl", "--protocols="+version, "dump-groups", "unix:"+filepath.Join(n.RunDir, "br-int.mgmt"))
			if n := strings.Count(groups, "nat(dst=198.18."); n < 400 {
				t.Errorf("the groups in %s have %d backends of the Service, want 400", version, n)
			}
		}
	}

	answered()

	if after := c.vswitchds(t); after != daemons {
		t.Errorf("processes of ovs-vswitchd: %s, before %s", after, daemons)
	}

	for _, family := range []string{"IPv4", "IPv6"} {
		c.waitForEvent(t, "large", "more than 400 "+family+" endpoints: each frontend uses at most 400 of them")
	}

	c.isHealthy(t)
}

// addressesOutside returns n addresses of each family that only the outside host has, until the
// test ends.
func (c *Cluster) addressesOutside(t *testing.T, n int) []netip.Addr {
	t.Helper()

	for _, prefix := range []string{"198.18.0.0/22", "2001:db8:98::/64"} {
		c.execute(t, "ext", "ip", "route", "add", "local", prefix, "dev", "lo")
		t.Cleanup(func() {
			if out, err := c.Exec(context.WithoutCancel(t.Context()), "ext", "ip", "route", "del", "local", prefix, "dev", "lo"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}

	var out []netip.Addr
	for i := range n {
		out = append(out,
			netip.MustParseAddr(fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250)),
			netip.MustParseAddr(fmt.Sprintf("2001:db8:98::%x", 1+i)))
	}

	return out
}

// vswitchds returns the process IDs of ovs-vswitchd on all nodes.
func (c *Cluster) vswitchds(t *testing.T) string {
	t.Helper()

	var out []string

	for _, n := range c.Nodes() {
		pid, err := os.ReadFile(filepath.Join(n.RunDir, "ovs-vswitchd.pid"))
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, strings.TrimSpace(string(pid)))
	}

	return strings.Join(out, " ")
}
