package ipam_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}

	return out
}

func TestRequests(t *testing.T) {
	subnets := prefixes("10.0.0.0/29", "fd00::/64")

	for _, tt := range []struct {
		name string
		want []string
		got  []string
		err  error
	}{
		{name: "both", want: []string{"fd00::9", "10.0.0.5"}, got: []string{"10.0.0.5/29", "fd00::9/64"}},
		{name: "one, the other is chosen", want: []string{"10.0.0.5"}, got: []string{"10.0.0.5/29", "fd00::3/64"}},
		{name: "taken", want: []string{"10.0.0.4"}, err: ipam.ErrTaken},
		{name: "the router's", want: []string{"10.0.0.1"}, err: ipam.ErrInvalid},
		{name: "broadcast", want: []string{"10.0.0.7"}, err: ipam.ErrInvalid},
		{name: "outside", want: []string{"10.0.0.8"}, err: ipam.ErrInvalid},
		{name: "two in a subnet", want: []string{"10.0.0.5", "10.0.0.6"}, err: ipam.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := ipam.NewPods()
			if err := p.Hold(ipam.Pod{Name: "ns/other", UID: "1"}, prefixes("10.0.0.4/29")); err != nil {
				t.Fatal(err)
			}

			got, err := p.Allocate(ipam.Pod{Name: "ns/a", UID: "1"}, subnets, addrs(tt.want...)...)
			if diff := cmp.Diff(tt.got, text(got)); diff != "" || !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v; addresses (-want +got):\n%s", err, tt.err, diff)
			}

			if err != nil && p.Len() != 1 {
				t.Errorf("%d addresses are held after an error, want 1", p.Len())
			}

			var unavailable *ipam.UnavailableError
			if errors.As(err, &unavailable) != errors.Is(tt.err, ipam.ErrTaken) {
				t.Errorf("%v: whether it goes away is wrong", err)
			}
		})
	}
}

func TestHeldAddressesStay(t *testing.T) {
	p := ipam.NewPods()
	pod := ipam.Pod{Name: "ns/a", UID: "1"}
	allocate := func(subnets ...string) []string {
		t.Helper()

		got, err := p.Allocate(pod, prefixes(subnets...))
		if err != nil {
			t.Fatal(err)
		}

		return text(got)
	}
	allocate("10.0.0.0/24", "fd00::/64")

	if diff := cmp.Diff([]string{"10.0.0.3/24"}, allocate("10.0.0.0/24")); diff != "" {
		t.Errorf("after a family has gone (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(addrs("fd00::3"), p.TakeFreed(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("freed (-want +got):\n%s", diff)
	}

	allocate("10.0.1.0/24")

	if got := p.TakeFreed(); len(got) != 1 || got[0] != netip.MustParseAddr("10.0.0.3") {
		t.Errorf("freed by a move: %v", got)
	}

	if err := p.Hold(pod, prefixes("10.0.1.2/24")); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("hold the management port's address: %v, want %v", err, ipam.ErrInvalid)
	}

	for _, two := range [][]netip.Prefix{prefixes("10.0.1.5/24", "10.0.1.6/24"), prefixes("10.0.1.5/24", "fd00::5/64", "fd00::6/64"), prefixes("10.0.1.5/24", "10.0.1.5/24")} {
		if err := p.Hold(pod, two); !errors.Is(err, ipam.ErrInvalid) || p.Len() != 1 {
			t.Errorf("hold %v: %v, want %v; %d addresses are held", two, err, ipam.ErrInvalid, p.Len())
		}
	}

	p.Release("ns/a", "1")

	if p.Len() != 1 {
		t.Error("a pod to be kept was released")
	}

	p.Release("ns/a")

	if p.Len() != 0 || len(p.TakeFreed()) != 1 {
		t.Error("a released pod has addresses")
	}
}

func TestMACs(t *testing.T) {
	p := ipam.NewPods()
	a, b := ipam.Pod{Name: "ns/a", UID: "1"}, ipam.Pod{Name: "ns/b", UID: "1"}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}

	node1, node2 := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.1.0/24")
	if err := p.HoldMAC(a, node1, mac); err != nil {
		t.Fatal(err)
	}

	var until *ipam.UnavailableError
	if err := p.HoldMAC(b, node1, mac); !errors.As(err, &until) || until.For != node1 {
		t.Errorf("the MAC of a pod without addresses: %v, for %+v, want for the subnet", err, until)
	}

	if err := p.Hold(a, prefixes("10.0.0.3/24")); err != nil {
		t.Fatal(err)
	}

	err := p.HoldMAC(b, node1, mac)
	if !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("another pod's: %v, want %v", err, ipam.ErrTaken)
	}

	if !errors.As(err, &until) || until.For != netip.MustParsePrefix("10.0.0.3/32") {
		t.Errorf("taken for %+v, want for the address of the pod that has it", until)
	}

	if err := p.HoldMAC(b, node2, mac); err != nil {
		t.Errorf("on another node: %v", err)
	}

	p.Release("ns/a")

	if err := p.HoldMAC(b, node1, mac); err != nil {
		t.Errorf("after its release: %v", err)
	}
}

func TestOutsideAndCapacity(t *testing.T) {
	n := ipam.NewNodes([]ipam.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), HostLen: 24}}, 10)
	for node, subnets := range map[string][]netip.Prefix{
		"in": prefixes("10.0.1.0/24"), "other": prefixes("192.168.0.0/24"), "v6": prefixes("10.0.2.0/24", "fd00::/64"),
	} {
		if err := n.HoldSubnets(node, subnets); err != nil {
			t.Fatal(err)
		}

		if err := n.CheckInside(node); errors.Is(err, ipam.ErrInvalid) != (node == "other") {
			t.Errorf("%s outside: %v", node, err)
		}
	}

	if err := n.HoldSubnets("all", prefixes("10.0.0.0/16")); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("hold what others have parts of: %v, want %v", err, ipam.ErrTaken)
	}

	whole := ipam.NewNodes([]ipam.Subnet{{Prefix: netip.MustParsePrefix("10.1.0.0/24"), HostLen: 24}}, 1)
	if err := errors.Join(whole.HoldSubnets("all", prefixes("10.1.0.0/24")), whole.CheckInside("all")); err != nil {
		t.Errorf("a node that has the whole cluster subnet: %v", err)
	}

	if got := n.Capacity()[netip.MustParsePrefix("10.0.0.0/16")]; got.Used != 2 || got.Room != 256 {
		t.Errorf("capacity %+v, want 2 of 256", got)
	}

	for subnet, want := range map[string]int{"10.0.0.0/24": 252, "10.0.0.0/29": 4, "fd00::/125": 5, "fd00::/64": 1 << 30, "fd00::/97": 1 << 30, "fd00::/98": 1<<30 - 3, "10.0.0.0/31": 0} {
		if got := ipam.Capacity(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("capacity of %s: %d, want %d", subnet, got, want)
		}
	}
}
