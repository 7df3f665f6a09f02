package ipam

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// TestMACsThatMeet: MAC addresses derived from IPv6 addresses are a digest, which a pod can make
// meet another's by requesting an address. Neither it nor chance takes the node's or another pod's.
func TestMACsThatMeet(t *testing.T) {
	subnets := []netip.Prefix{netip.MustParsePrefix("fd00::/64")}
	first := netip.MustParsePrefix("fd00::3/64")

	derived := annotation.DerivedMAC(first.Addr())
	for _, tt := range []struct {
		name  string
		setUp func(*Allocator)
		mac   net.HardwareAddr // what it must not have
	}{
		{"the node's", func(a *Allocator) { a.macs["n"] = []string{derived.String()} }, derived},
		{"another pod's", func(a *Allocator) { must(t, a.pods.HoldMAC(Pod{Name: "ns/b", UID: "b"}, subnets[0], derived)) }, derived},
		{"unassigned", func(*Allocator) {}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := NewAllocator(Settings{})
			pod := Pod{Name: "ns/a", UID: "a"}
			must(t, a.pods.Hold(pod, []netip.Prefix{first}))
			tt.setUp(a)
			must(t, a.holdMAC(pod, "n", subnets))

			got := a.network(pod).MAC
			if tt.mac == nil != slices.Equal(got, derived) || annotation.CheckMAC(got) != nil {
				t.Errorf("it has %s, the derived one is %s", got, derived)
			}

			must(t, a.holdMAC(pod, "n", subnets, got))

			if again := a.network(pod).MAC; !slices.Equal(got, again) {
				t.Errorf("%s the next time, %s before", again, got)
			}

			if err := a.checkRequest(Pod{Name: "ns/c", UID: "c"}, "n", annotation.Request{Addresses: []netip.Addr{first.Addr()}, MAC: derived}, subnets); err == nil {
				t.Error("the same may be requested")
			}

			for _, other := range []string{"fd00::4", "fd01::3"} { // another address than it is made from, one of another subnet
				if err := a.checkRequest(pod, "n", annotation.Request{Addresses: []netip.Addr{netip.MustParseAddr(other)}, MAC: derived}, subnets); err == nil {
					t.Errorf("%s may be requested with %s", derived, other)
				}
			}
		})
	}
}

// TestRecovery: a new leader holds what OVN has of a pod, whatever its annotation says by then.
func TestRecovery(t *testing.T) {
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{annotation.NodeSubnets: annotation.FormatNodeSubnets(subnets)}}}
	pod := func(name string, said annotation.Pod, request string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u-x", Annotations: map[string]string{
				annotation.PodNetworks: annotation.FormatPod(said), annotation.DefaultNetwork: request,
			}},
			Spec: corev1.PodSpec{NodeName: "n"},
		}
	}
	network := func(mac string, addresses ...string) annotation.Pod {
		p := annotation.Pod{}

		p.MAC, _ = net.ParseMAC(mac)
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, netip.MustParsePrefix(a))
		}

		return p
	}

	odd, router, victims := "02:00:00:00:00:09", annotation.DerivedMAC(netip.MustParseAddr("10.0.0.1")).String(), "10.0.0.7/24"
	for _, tt := range []struct {
		name, request, said, port string // MAC addresses of annotation and port
		addresses, inOVN          []string
		want                      []string
		mac                       string
	}{
		{name: "only the annotation", said: "0a:58:0a:00:00:05", addresses: []string{"10.0.0.5/24", "fd00::5/64"}, want: []string{"10.0.0.5/24", "fd00::5/64"}, mac: "0a:58:0a:00:00:05"},
		{name: "an annotation of one family", said: "0a:58:0a:00:00:05", addresses: []string{"10.0.0.5/24"}, want: []string{"10.0.0.5/24"}, mac: "0a:58:0a:00:00:05"},
		{name: "an annotation with another MAC", said: odd, addresses: []string{"10.0.0.5/24"}, want: []string{"10.0.0.5/24"}, mac: "0a:58:0a:00:00:05"},
		{name: "one that is requested", said: odd, request: `{"mac":"` + odd + `"}`, addresses: []string{"10.0.0.5/24"}, want: []string{"10.0.0.5/24"}, mac: odd},
		{name: "one that was requested later", said: "0a:58:0a:00:00:05", request: `{"mac":"` + odd + `"}`, addresses: []string{"10.0.0.5/24"}, want: []string{"10.0.0.5/24"}, mac: "0a:58:0a:00:00:05"},
		{name: "one that OVN has", said: router, port: odd, addresses: []string{"10.0.0.9/24"}, inOVN: []string{"10.0.0.5"}, want: []string{"10.0.0.5/24"}, mac: odd},
		{name: "OVN has the router's", said: odd, port: router, addresses: []string{"10.0.0.5/24"}, inOVN: []string{"10.0.0.5"}, want: []string{"10.0.0.5/24"}, mac: "0a:58:0a:00:00:05"},
		{name: "OVN has many", port: odd, addresses: []string{victims}, inOVN: []string{"10.0.0.5", "10.0.0.6", "fd00::5", "192.0.2.1"}, want: []string{"10.0.0.5/24", "fd00::5/64"}, mac: odd},
		{name: "many are said", said: odd, addresses: []string{"10.0.0.5/24", "10.0.0.6/24"}, want: nil},
		{name: "a family that OVN does not have yet", said: odd, port: "0a:58:0a:00:00:05", addresses: []string{"10.0.0.6/24", "fd00::6/64"}, inOVN: []string{"10.0.0.5"}, want: []string{"10.0.0.5/24", "fd00::6/64"}, mac: "0a:58:0a:00:00:05"},
		{name: "a younger pod's, in OVN, of a family that OVN does not have", said: odd, port: odd, addresses: []string{victims, "fd00::5/64"}, inOVN: []string{"fd00::5"}, want: []string{"fd00::5/64"}, mac: odd},
		{name: "a younger pod's, in OVN", said: "0a:58:0a:00:00:07", addresses: []string{victims}, want: nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := NewAllocator(Settings{Log: slog.New(slog.DiscardHandler)})
			victim, p := pod("victim", annotation.Pod{}, ""), pod("a", network(tt.said, tt.addresses...), tt.request)

			ports := []Port{{Pod: Pod{Name: "ns/victim", UID: "u-x"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}}
			if tt.inOVN != nil {
				mine := Port{Pod: Pod{Name: "ns/a", UID: "u-x"}}

				mine.MAC, _ = net.ParseMAC(tt.port)
				for _, a := range tt.inOVN {
					mine.Addresses = append(mine.Addresses, netip.MustParseAddr(a))
				}

				ports = append(ports, mine)
			}

			a.Recover([]*corev1.Node{node}, []*corev1.Pod{p, victim}, ports) // the older first

			got := a.network(PodOf(p))
			if !slices.Equal(prefixes(got.Addresses), tt.want) || got.MAC.String() != tt.mac {
				t.Errorf("it has %v and %q, want %v and %q", got.Addresses, got.MAC, tt.want, tt.mac)
			}

			if held := prefixes(a.pods.Held(PodOf(victim))); !slices.Equal(held, []string{victims}) {
				t.Errorf("the victim has %v", held)
			}
		})
	}
}

func prefixes(list []netip.Prefix) (out []string) {
	for _, p := range list {
		out = append(out, p.String())
	}

	return out
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
