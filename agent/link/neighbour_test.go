package link

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestProbeNeighbours checks that the kernel probes unknown, failed and known neighbours. Entries
// of an operator stay as they are.
func TestProbeNeighbours(t *testing.T) {
	veth(t, "nei0")
	pid := testnode.Netns(t)
	testnode.Run(t, "ip", "link", "set", "nei0p", "netns", pid)

	far := func(argv ...string) {
		testnode.Run(t, append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--"}, argv...)...)
	}
	far("ip", "link", "set", "nei0p", "up", "address", "02:00:00:00:00:02")
	testnode.Run(t, "ip", "link", "set", "nei0", "up")
	testnode.Run(t, "ip", "addr", "add", "10.9.0.1/24", "dev", "nei0")
	testnode.Run(t, "ip", "addr", "add", "fd09::1/64", "dev", "nei0", "nodad")
	far("ip", "addr", "add", "10.9.0.2/24", "dev", "nei0p")
	far("ip", "addr", "add", "fd09::2/64", "dev", "nei0p", "nodad")

	state := func(a string) string {
		return strings.TrimSpace(testnode.Run(t, "ip", "neigh", "show", "to", a, "dev", "nei0", "nud", "all"))
	}
	probe := func(a string) {
		t.Helper()

		if err := ProbeNeighbours([]Neighbour{{"nei0", netip.MustParseAddr(a)}}); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(a, want string) {
		t.Helper()
		testnode.Eventually(t, "neighbour "+a+" is "+want, func() error {
			if s := state(a); !strings.Contains(s, want) {
				return fmt.Errorf("it is %q", s)
			}

			return nil
		})
	}
	// The kernel gives up after three probes, one per second. What must fail need not take that long.
	every := func(ms string) {
		t.Helper()

		for _, family := range []string{"ipv4", "ipv6"} {
			testnode.Run(t, "sysctl", "-qw", "net."+family+".neigh.nei0.retrans_time_ms="+ms)
		}
	}

	for _, a := range []string{"10.9.0.2", "fd09::2"} {
		if s := state(a); s != "" {
			t.Fatalf("there is an entry before the first probe: %s", s)
		}

		probe(a)
		becomes(a, "lladdr 02:00:00:00:00:02 REACHABLE")
		// A known entry is probed again, and stays until there is an answer.
		testnode.Run(t, "ip", "neigh", "replace", a, "dev", "nei0", "lladdr", "02:00:00:00:00:02", "nud", "stale")
		probe(a)
		becomes(a, "lladdr 02:00:00:00:00:02 REACHABLE")
		far("ip", "link", "set", "nei0p", "address", "02:00:00:00:00:03")
		every("50")
		probe(a)
		becomes(a, "FAILED") // the kernel asks the old address alone, as always
		every("1000")
		probe(a)
		becomes(a, "lladdr 02:00:00:00:00:03 REACHABLE")

		for _, fixed := range []string{"permanent", "noarp"} {
			testnode.Run(t, "ip", "neigh", "replace", a, "dev", "nei0", "lladdr", "02:00:00:00:00:99", "nud", fixed)
			before := state(a)
			probe(a)

			if s := state(a); s != before || !strings.Contains(s, strings.ToUpper(fixed)) {
				t.Errorf("an entry that is %s has become %q", fixed, s)
			}
		}

		testnode.Run(t, "ip", "neigh", "del", a, "dev", "nei0")
		far("ip", "link", "set", "nei0p", "address", "02:00:00:00:00:02")
	}

	silent := netip.MustParseAddr("10.9.0.77")

	every("200")

	for range 2 { // the second while the kernel asks
		if err := ProbeNeighbours([]Neighbour{{"nei0", silent}}); err != nil {
			t.Fatal(err)
		}
	}

	becomes(silent.String(), "FAILED")

	if err := ProbeNeighbours([]Neighbour{{"nothere", silent}}); err == nil {
		t.Error("a device that does not exist is probed")
	}
}

func TestNeighbourTowards(t *testing.T) {
	veth(t, "nei1")
	testnode.Run(t, "ip", "link", "set", "nei1", "up")
	testnode.Run(t, "ip", "addr", "add", "10.9.1.1/24", "dev", "nei1")
	testnode.Run(t, "ip", "addr", "add", "fd09:1::1/64", "dev", "nei1", "nodad")
	testnode.Run(t, "ip", "route", "add", "10.10.0.0/16", "via", "10.9.1.9")
	testnode.Run(t, "ip", "route", "add", "fd10::/48", "via", "fd09:1::9")

	for to, want := range map[string]string{"10.9.1.7": "10.9.1.7", "10.10.3.4": "10.9.1.9", "fd09:1::7": "fd09:1::7", "fd10::4": "fd09:1::9"} {
		n, err := NeighbourTowards(netip.MustParseAddr(to))
		if err != nil || n.Device != "nei1" || n.Addr != netip.MustParseAddr(want) {
			t.Errorf("towards %s: %v, %v, want %s by nei1", to, n, err, want)
		}
	}

	if n, err := NeighbourTowards(netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Errorf("towards an address without a route: %v", n)
	}
}
