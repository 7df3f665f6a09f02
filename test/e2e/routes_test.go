package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testFlushedRoutes: all routes of the uplink, the bridge and the management port are flushed, with
// the agent running, and without an agent, where ovnkube status says so. They come back, and with
// them traffic between nodes, from the host to pods, and of pods to the outside. A host connection
// continues.
func testFlushedRoutes(t *testing.T, c *Cluster) {
	devices := []string{c.Uplink(), "ovn-k8s-mp0"}
	if c.bridge() != c.Uplink() {
		devices = append(devices, c.bridge())
	}

	before := c.routes(t)
	for _, running := range []bool{true, false} {
		events := c.nodeEvents(t, "node1", "RoutesRemoved")

		live := c.hold(t, "host connection", "ext", port(c.node(1)(false), sshPort), time.Hour)
		if !running {
			c.killAgent(t, 1)
		}

		for _, device := range devices {
			c.execute(t, "node1", "ip", "-4", "route", "flush", "dev", device)
			c.execute(t, "node1", "ip", "-6", "route", "flush", "dev", device)
		}

		if !running {
			out, err := c.Exec(t.Context(), "node1", c.Binary("ovnkube"), "status", "--run-dir", c.Node(1).RunDir)
			if err == nil || !strings.Contains(string(out), "was removed") || !strings.Contains(string(out), "start the agent") {
				t.Errorf("status without routes and agent: %v:\n%s", err, out)
			}

			c.startAgent(t, 1)
		}

		within(t, "routes as before", func() error {
			if after := c.routes(t); after != before {
				return fmt.Errorf("routes before:\n%safter:\n%s", before, after)
			}

			return nil
		})
		c.hasFault(t, 1, "routes of ", true)

		if running { // the reasons of faults of one minute have one Event
			c.awaitNodeEvent(t, "node1", "RoutesRemoved", "find out who flushes them", events)
		}

		for _, v6 := range []bool{false, true} {
			within(t, "traffic", func() error {
				return errors.Join(
					c.ask(t, host("a"), port(c.pod("c")(v6), podPort)), c.ask(t, host("c"), port(c.pod("a")(v6), podPort)),
					c.ask(t, "node1", port(c.pod("a")(v6), podPort)), c.ask(t, "node1", port(c.pod("c")(v6), podPort)),
					c.ask(t, host("a"), port(beyond(v6), outsidePort)), c.ask(t, "ext", port(c.node(1)(v6), sshPort)),
				)
			})
		}

		live.stop(t)
		live.held(t)
	}

	if !testing.Short() {
		c.hasFault(t, 1, "routes of ", false) // after a minute
	}
}

// routes returns node1's routes, sorted.
func (c *Cluster) routes(t *testing.T) string {
	t.Helper()
	return c.execute(t, "node1", "sh", "-c", "{ ip -4 route; ip -6 route; } | sort")
}
