package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// testJumbo: the bridge follows an uplink with large frames.
func testJumbo(t *testing.T, c *Cluster) {
	const jumbo = 9000

	set := func(mtu int) {
		if err := c.FabricMTU(t.Context(), mtu); err != nil {
			t.Fatal(err)
		}

		for _, n := range c.Nodes() {
			within(t, "bridge of "+n.Name+" follows", func() error {
				if out := c.execute(t, n.Name, "ip", "link", "show", c.bridge()); !strings.Contains(out, "mtu "+strconv.Itoa(mtu)) {
					return fmt.Errorf("bridge: %s", out)
				}

				return nil
			})
		}
	}

	set(jumbo)
	defer set(1500)
	// The controller passes the pods' new MTU to every gateway router.
	for range 4 { // most likely reaches both endpoints
		within(t, "NodePort", func() error { return c.ask(t, "ext", port(c.gateway(1)(true), nodePort)) })
	}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		c.ping(t, "outside to host", "ext", c.node(1)(v6), "-c", "5", "-i", "0.1", "-s", "8000", "-M", "do").pinged(t, 5)
		c.answers(t, "ext", "1048576", "pull", port(c.node(1)(v6), hostPort))
		c.answers(t, "ext", "1048576", "pull", port(c.gateway(1)(v6), nodePort))
		c.answers(t, host("a"), "1048576", "pull", port(outside(v6), outsidePort))
	})
}

// testPMTUD: a sender behind a narrow link gets an ICMP error, which must reach the pods behind
// NodePort and announced address, and the host.
func testPMTUD(t *testing.T, c *Cluster) {
	const narrow = 1300
	if err := c.AddFar(t.Context(), narrow); err != nil {
		t.Fatal(err)
	}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		c.answers(t, "far", "1048576", "pull", port(c.node(1)(v6), hostPort))
		c.answers(t, "far", "1048576", "pull", port(c.gateway(1)(v6), nodePort))
		c.answers(t, "far", "1048576", "pull", port(vip(v6), servicePort))
	})
}

// testOffload: with and without offloads of the uplink's hardware.
func testOffload(t *testing.T, c *Cluster) {
	for _, state := range []string{"off", "on"} {
		c.execute(t, "node1", "ethtool", "-K", c.uplink, "tx", state, "gso", state, "gro", state)
		bothFamilies(t, func(t *testing.T, v6 bool) {
			c.answers(t, "ext", "1048576", "pull", port(c.node(1)(v6), hostPort))
			c.answers(t, "ext", "1048576", "pull", port(c.gateway(1)(v6), nodePort))
			c.answers(t, host("a"), "1048576", "pull", port(outside(v6), outsidePort))
			c.answers(t, host("a"), "1048576", "pull", port(c.pod("c")(v6), podPort))
		})
	}
}
