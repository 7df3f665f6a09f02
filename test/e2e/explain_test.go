package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// testExplain: a packet is counted as explain predicts.
func testExplain(t *testing.T, c *Cluster) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		if c.layout != dedicated {
			ssh := netip.AddrPortFrom(c.node(1)(v6), sshPort)
			c.explained(t, func() error { return c.ask(t, "ext", ssh) }, "tcp", port(outside(v6), 4242).String(), ssh.String())
		}

		front := netip.AddrPortFrom(c.gateway(1)(v6), nodePort)
		c.explained(t, func() error { return c.ask(t, "ext", front) }, "tcp", port(outside(v6), 4242).String(), front.String())
		c.explained(t, func() error {
			_, err := c.Exec(t.Context(), "ext", "ping", "-n", "-c", "1", c.gateway(1)(v6).String())
			return err
		}, "icmp", outside(v6).String(), c.gateway(1)(v6).String())
		t.Log("\n" + c.execute(t, "node1", append(c.explain("-json=false"), "tcp", port(outside(v6), 4242).String(), port(c.gateway(1)(v6), 50001).String())...))

		if c.local {
			return
		}

		traced := c.asked(t, "-ovn-trace", "node1", "-bridge", c.bridge(), "-sb-address", c.SBAddress(), "tcp", port(outside(v6), 4242).String(), front.String())
		if !strings.Contains(traced[0].OVN, "ct_lb") || !strings.Contains(traced[0].OVN, "output to") {
			t.Errorf("ovn-trace shows no load balancer:\n%s", traced[0].OVN)
		}
	})
}

// explanation is the result of explain for a packet.
type explanation struct {
	Reason, Verdict, OVN, Protocol string
	Source, Destination            netip.Addr
	SourcePort, DestinationPort    uint16
}

func (c *Cluster) explain(args ...string) []string {
	return append([]string{c.Binary("ovnkube"), "gateway", "explain", "-json", "-pin-dir", c.Node(1).PinDir, "-run-dir", c.Node(1).RunDir}, args...)
}

func (c *Cluster) asked(t *testing.T, args ...string) []explanation {
	t.Helper()
	out := c.execute(t, "node1", c.explain(args...)...)

	var all []explanation
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) == 0 {
		t.Fatalf("explain %v: %v: %s", args, err, out)
	}

	return all
}

// explained runs explain for a packet on node1, sends the packet, and checks the counter of that
// reason and verdict.
func (c *Cluster) explained(t *testing.T, send func() error, args ...string) {
	t.Helper()

	for _, told := range c.asked(t, args...) {
		if fields := []string{told.Protocol, netip.AddrPortFrom(told.Source, told.SourcePort).String(), netip.AddrPortFrom(told.Destination, told.DestinationPort).String()}; told.Protocol == "tcp" && !slices.Equal(fields, args) {
			t.Errorf("explained packet %q, want %q", fields, args)
		}

		before := c.countedAs(t, told)
		// A new cluster refuses the first connections to its Services.
		within(t, strings.Join(args, " "), send)
		// ovs-vswitchd reads its datapath's counters with a delay.
		within(t, "what it is explained as counts", func() error {
			if after := c.countedAs(t, told); after == before {
				return fmt.Errorf("%v: explained as %s to %s, which has counted nothing", args, told.Reason, told.Verdict)
			}

			return nil
		})
	}
}

func (c *Cluster) countedAs(t *testing.T, told explanation) uint64 {
	t.Helper()

	if c.flows {
		return c.flowsCounted(t, told)
	}

	counters, err := bpf.ReadCounters(c.Node(1).PinDir)
	if err != nil {
		t.Fatal(err)
	}

	for _, counter := range counters {
		if counter.Reason == told.Reason && counter.Verdict == told.Verdict {
			return counter.Packets
		}
	}

	t.Fatalf("no counter for %+v", told)

	return 0
}

// flowsCounted is countedAs with counters of flows.
func (c *Cluster) flowsCounted(t *testing.T, told explanation) uint64 {
	t.Helper()
	out := c.execute(t, "node1", c.Binary("ovnkube"), "gateway", "counters", "-all", "-json", "-run-dir", c.Node(1).RunDir)

	var counters []bpf.Counter
	if err := json.Unmarshal([]byte(out), &counters); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for _, counter := range counters {
		if counter.Reason == told.Reason && counter.Verdict == told.Verdict {
			return counter.Packets
		}
	}

	t.Fatalf("no counter for %+v in %s", told, out)

	return 0
}
