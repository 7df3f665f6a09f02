package ipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}

	return out
}

func text[T fmt.Stringer](list []T) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}

	return out
}

func TestNodeSubnets(t *testing.T) {
	subnet := func(p string, hostLen int) ipam.Subnet {
		return ipam.Subnet{Prefix: netip.MustParsePrefix(p), HostLen: hostLen}
	}
	for _, tt := range []struct {
		name    string
		subnets []ipam.Subnet
		held    map[string][]netip.Prefix
		nodes   []string
		want    [][]string
		err     error
	}{
		{
			name:    "dual stack",
			subnets: []ipam.Subnet{subnet("10.244.0.0/16", 24), subnet("fd00:10:244::/48", 64)},
			nodes:   []string{"a", "b", "a"},
			want:    [][]string{{"10.244.0.0/24", "fd00:10:244::/64"}, {"10.244.1.0/24", "fd00:10:244:1::/64"}, {"10.244.0.0/24", "fd00:10:244::/64"}},
		},
		{
			name:    "IPv6 first",
			subnets: []ipam.Subnet{subnet("fd00:10:244::/48", 64), subnet("10.244.0.0/16", 24)},
			nodes:   []string{"a"},
			want:    [][]string{{"fd00:10:244::/64", "10.244.0.0/24"}},
		},
		{
			name:    "a second subnet when the first is full",
			subnets: []ipam.Subnet{subnet("10.0.0.0/23", 24), subnet("10.9.0.0/24", 25)},
			nodes:   []string{"a", "b", "c"},
			want:    [][]string{{"10.0.0.0/24"}, {"10.0.1.0/24"}, {"10.9.0.0/25"}},
		},
		{
			name:    "held ones of another length are not overlapped",
			subnets: []ipam.Subnet{subnet("10.0.0.0/16", 24)},
			held:    map[string][]netip.Prefix{"old": prefixes("10.0.0.0/23")},
			nodes:   []string{"a", "old"},
			want:    [][]string{{"10.0.2.0/24"}, {"10.0.0.0/23"}},
		},
		{
			name:    "a family that is new is added",
			subnets: []ipam.Subnet{subnet("10.244.0.0/16", 24), subnet("fd00:10:244::/48", 64)},
			held:    map[string][]netip.Prefix{"a": prefixes("10.244.7.0/24")},
			nodes:   []string{"a"},
			want:    [][]string{{"10.244.7.0/24", "fd00:10:244::/64"}},
		},
		{
			name:    "end of the address space",
			subnets: []ipam.Subnet{subnet("255.255.255.0/24", 25)},
			nodes:   []string{"a", "b", "c"},
			want:    [][]string{{"255.255.255.0/25"}, {"255.255.255.128/25"}, nil},
			err:     ipam.ErrExhausted,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := ipam.NewNodes(tt.subnets, 100)
			for node, held := range tt.held {
				if err := n.HoldSubnets(node, held); err != nil {
					t.Fatal(err)
				}
			}

			var (
				got [][]string
				err error
			)

			for _, node := range tt.nodes {
				var s []netip.Prefix

				s, err = n.Subnets(node)
				got = append(got, text(s))
			}

			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("subnets (-want +got):\n%s", diff)
			}

			if !errors.Is(err, tt.err) {
				t.Errorf("last error: %v, want %v", err, tt.err)
			}
		})
	}
}

// A node that goes gives its subnets back: another node gets them, and they count as free.
func TestReleaseNode(t *testing.T) {
	cluster := []ipam.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/23"), HostLen: 24}, {Prefix: netip.MustParsePrefix("fd00::/63"), HostLen: 64}}

	for name, release := range map[string]func(n *ipam.Nodes){
		"the node":         func(n *ipam.Nodes) { n.Release("a") },
		"its subnets":      func(n *ipam.Nodes) { n.ReleaseSubnets("a") },
		"held in exchange": func(n *ipam.Nodes) { _ = n.HoldSubnets("a", prefixes("192.168.0.0/24", "fd01::/64")) },
	} {
		t.Run(name, func(t *testing.T) {
			n := ipam.NewNodes(cluster, 3)
			for _, node := range []string{"a", "b"} {
				if _, err := n.Subnets(node); err != nil {
					t.Fatal(err)
				}
			}

			if _, err := n.Subnets("c"); !errors.Is(err, ipam.ErrExhausted) {
				t.Fatalf("a third node of two: %v, want %v", err, ipam.ErrExhausted)
			}

			release(n)

			for p, c := range n.Capacity() {
				if c.Used != 1 || c.Room != 2 {
					t.Errorf("%s: %+v, want 1 of 2 in use", p, c)
				}
			}

			got, err := n.Subnets("c")
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff([]string{"10.0.0.0/24", "fd00::/64"}, text(got)); diff != "" {
				t.Errorf("subnets after the release (-want +got):\n%s", diff)
			}
		})
	}
}

// Release reports whether the node had an id, subnets or nothing.
func TestReleaseReports(t *testing.T) {
	n := ipam.NewNodes([]ipam.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), HostLen: 24}}, 3)
	if _, err := n.ID("numbered"); err != nil {
		t.Fatal(err)
	}

	if _, err := n.Subnets("subnets"); err != nil {
		t.Fatal(err)
	}

	for node, want := range map[string]bool{"numbered": true, "subnets": true, "unknown": false} {
		if got := n.Release(node); got != want {
			t.Errorf("release of %s: %v, want %v", node, got, want)
		}

		if n.Release(node) {
			t.Errorf("%s had something after its release", node)
		}
	}
}

// Used follows each pod's address, in its subnet alone.
func TestUsed(t *testing.T) {
	p := ipam.NewPods()
	subnets := prefixes("10.0.1.0/24", "fd00:1::/64")
	used := func(want int) {
		t.Helper()

		for _, s := range subnets {
			if got := p.Used(s); got != want {
				t.Errorf("%d addresses of %s in use, want %d", got, s, want)
			}
		}
	}
	used(0)

	for i, name := range []string{"ns/a", "ns/b"} {
		if _, err := p.Allocate(ipam.Pod{Name: name, UID: "1"}, subnets); err != nil {
			t.Fatal(err)
		}

		used(i + 1)
	}

	p.Release("ns/a")
	used(1)

	if got := p.Used(netip.MustParsePrefix("10.0.2.0/24")); got != 0 {
		t.Errorf("%d addresses of another subnet in use", got)
	}
}

// A full subnet is full wherever the search begins: no address outside of it is given.
func TestExhaustedFromTheMiddle(t *testing.T) {
	p, subnets := ipam.NewPods(), prefixes("10.0.0.0/29") // .3 to .6
	pod := func(name string) ipam.Pod { return ipam.Pod{Name: "ns/" + name, UID: "1"} }
	allocate := func(names ...string) {
		t.Helper()

		for _, name := range names {
			if _, err := p.Allocate(pod(name), subnets); err != nil {
				t.Fatal(err)
			}
		}
	}
	allocate("a", "b", "c", "d")
	p.Release("ns/a")
	allocate("e") // the search for the next begins behind its address

	if got, err := p.Allocate(pod("f"), subnets); !errors.Is(err, ipam.ErrExhausted) {
		t.Errorf("%v, %v, want %v", got, err, ipam.ErrExhausted)
	}
}

// A pod keeps what it has of one family when it gets the other, and gets all that lack.
func TestFurtherFamily(t *testing.T) {
	p := ipam.NewPods()

	pod := ipam.Pod{Name: "ns/a", UID: "1"}
	if err := p.Hold(pod, prefixes("10.0.1.9/24")); err != nil {
		t.Fatal(err)
	}

	got, err := p.Allocate(pod, prefixes("10.0.1.0/24", "fd00:1::/64"))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"10.0.1.9/24", "fd00:1::3/64"}, text(got)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestNodeIDs(t *testing.T) {
	n := ipam.NewNodes(nil, 3)
	if err := n.HoldID("b", 2); err != nil {
		t.Fatal(err)
	}

	if err := n.HoldID("x", 2); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("hold a taken id: %v, want %v", err, ipam.ErrTaken)
	}

	for _, step := range []struct {
		node string
		want int
	}{{"a", 1}, {"b", 2}, {"c", 3}, {"a", 1}, {"d", 0}} {
		got, err := n.ID(step.node)
		if got != step.want || (err != nil) != (step.want == 0) {
			t.Errorf("id of %s: %d, %v, want %d", step.node, got, err, step.want)
		}
	}

	n.Release("b")

	if got, err := n.ID("d"); got != 2 || err != nil {
		t.Errorf("id after a release: %d, %v, want 2", got, err)
	}
}

func TestJoinAddress(t *testing.T) {
	for _, tt := range []struct {
		join string
		id   int
		want string
	}{
		{"100.64.0.0/16", 1, "100.64.0.2/16"},
		{"100.64.0.0/16", 300, "100.64.1.45/16"},
		{"fd98::/64", 1, "fd98::2/64"},
		{"100.64.0.0/30", 3, "invalid Prefix"},
	} {
		got, err := ipam.JoinAddress(netip.MustParsePrefix(tt.join), tt.id)
		if got.String() != tt.want || (err != nil) != (tt.want == "invalid Prefix") {
			t.Errorf("join address of %d in %s: %s, %v, want %s", tt.id, tt.join, got, err, tt.want)
		}
	}
}

func TestPods(t *testing.T) {
	p := ipam.NewPods()

	subnets := prefixes("10.244.1.0/24", "fd00:10:244:1::/64")
	if err := p.Hold(ipam.Pod{Name: "ns/old", UID: "0"}, prefixes("10.244.1.4/24", "fd00:10:244:1::3/64")); err != nil {
		t.Fatal(err)
	}

	allocate := func(name, uid string, want ...string) {
		t.Helper()

		got, err := p.Allocate(ipam.Pod{Name: name, UID: uid}, subnets)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, text(got)); diff != "" {
			t.Errorf("addresses of %s %s (-want +got):\n%s", name, uid, diff)
		}
	}
	allocate("ns/a", "1", "10.244.1.3/24", "fd00:10:244:1::4/64")
	allocate("ns/a", "1", "10.244.1.3/24", "fd00:10:244:1::4/64") // again: the same
	allocate("ns/b", "1", "10.244.1.5/24", "fd00:10:244:1::5/64")
	p.Release("ns/a")
	allocate("ns/c", "1", "10.244.1.6/24", "fd00:10:244:1::6/64") // not the one just released
	allocate("ns/b", "2", "10.244.1.7/24", "fd00:10:244:1::7/64") // a new pod of an old name
	p.Release("ns/b", "2")

	if got := p.Held(ipam.Pod{Name: "ns/b", UID: "1"}); got != nil {
		t.Errorf("the replaced pod still has %v", got)
	}

	if err := p.Hold(ipam.Pod{Name: "ns/x", UID: "1"}, prefixes("10.244.1.99/24", "fd00:10:244:1::7/64")); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("hold a taken address: %v, want %v", err, ipam.ErrTaken)
	}

	if got := p.Len(); got != 6 {
		t.Errorf("addresses in use: %d, want 6", got)
	}
}

func TestPodsExhaustion(t *testing.T) {
	for _, tt := range []struct {
		subnet string
		first  string
		room   int
	}{
		{"10.0.0.0/29", "10.0.0.3/29", 4},               // .3 to .6
		{"fd00::/125", "fd00::3/125", 5},                // ::3 to ::7
		{"255.255.255.248/29", "255.255.255.251/29", 4}, // the last subnet there is
	} {
		t.Run(tt.subnet, func(t *testing.T) {
			p := ipam.NewPods()
			subnets := prefixes(tt.subnet)

			pod := func(i int) ipam.Pod { return ipam.Pod{Name: fmt.Sprint("ns/", i), UID: "u"} }
			for i := range tt.room {
				if _, err := p.Allocate(pod(i), subnets); err != nil {
					t.Fatalf("pod %d: %v", i, err)
				}
			}

			if _, err := p.Allocate(pod(tt.room), subnets); !errors.Is(err, ipam.ErrExhausted) {
				t.Errorf("one more: %v, want %v", err, ipam.ErrExhausted)
			}

			p.Release("ns/0", "")

			got, err := p.Allocate(pod(tt.room), subnets)
			if err != nil || text(got)[0] != tt.first {
				t.Errorf("after a release: %v, %v, want %s", got, err, tt.first)
			}
		})
	}
}
