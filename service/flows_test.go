package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestService_Units_flowsOfBounds checks the flows of Services at their bounds. One with the most
// frontends exceeds the default budget of a namespace, and one with the most backends at many
// addresses does not overflow an int of 32 bits.
func TestService_Units_flowsOfBounds(t *testing.T) {
	service := func(ports, external, endpoints int, affinity corev1.ServiceAffinity) *Service {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1", "fd00:10:96::1"}, SessionAffinity: affinity},
		}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: make([]discoveryv1.Endpoint, endpoints)}

		for i := range ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1 + i)})
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{})
		}

		for i := range external {
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("203.0.113.%d", i))
		}

		return New(Config{ExternalIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}, svc, []*discoveryv1.EndpointSlice{slice})
	}
	budget := Shares{}.Services(1).Namespace
	host := service(2, 0, 2, "")
	host.endpointSlices[0].Endpoints[1].Addresses = []string{"192.0.2.1"}
	host.cfg.Pods = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	nodePorts := service(3, 0, 1, "")

	nodePorts.Ports[1].NodePort = 30000
	for _, tc := range []struct {
		name   string
		of     *Service
		flows  int
		within bool
	}{
		{"one port", service(1, 0, 0, ""), 2*4 + 2, true},
		{"endpoints of one family", service(1, 0, 10, ""), 2*4 + 2 + 10, true},
		{"an endpoint on a host", host, 2*2*4 + 2 + 2*(2+1), true},
		{"a node port of three ports", nodePorts, 3*2*4 + 2*5 + 2 + 2 + 4, true},
		{"affinity", service(1, 0, 10, corev1.ServiceAffinityClientIP), 2*6 + 2 + 5*10, true},
		{"7,168 frontends", service(1024, 5, 0, ""), 7168*4 + 7, true},
		{"8,192 frontends", service(1024, 6, 0, ""), 8192*4 + 8, false},
		{"the most backends", service(124, 64, 131072/124-1, corev1.ServiceAffinityClientIP), 124*66*6 + 66 + 5*124*65*1056, false},
	} {
		u := tc.of.Units()
		if u.Flows != tc.flows || u.within(budget) != tc.within {
			t.Errorf("%s: %d flows, want %d; in the budget: %t", tc.name, u.Flows, tc.flows, u.within(budget))
		}
	}

	huge := service(1, 64, 0, corev1.ServiceAffinityClientIP)
	for range 40 {
		huge.endpointSlices = append(huge.endpointSlices, &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: make([]discoveryv1.EndpointPort, 1), Endpoints: make([]discoveryv1.Endpoint, 1<<17)})
	}

	if got := huge.Units().Flows; got != maxFlows {
		t.Errorf("%d flows, want the highest number %d", got, maxFlows)
	}
}

// TestOutsidePrefixes compares the bound with the prefixes that are really outside of random
// ranges.
func TestOutsidePrefixes(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))

	for range 300 {
		var ranges []netip.Prefix

		for range 1 + r.IntN(1<<r.IntN(9)) {
			a := netip.AddrFrom4([4]byte{byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})

			bits := r.IntN(33)
			if r.IntN(3) > 0 {
				bits = 24 + r.IntN(9)
			}

			ranges = append(ranges, netip.PrefixFrom(a, bits).Masked())
		}

		if got, want := outsidePrefixes(ranges), outsideOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0), ranges); got < want {
			t.Fatalf("outside of %v are %d prefixes, the bound is %d", ranges, want, got)
		}
	}

	if got := outsidePrefixes([]netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}); got != 32 {
		t.Errorf("outside of one address are %d prefixes, want 32", got)
	}

	if got := outsidePrefixes([]netip.Prefix{netip.MustParsePrefix("::/0")}); got != 0 {
		t.Errorf("outside of everything are %d prefixes", got)
	}
}

// outsideOf returns the number of the fewest prefixes that cover p without the ranges.
func outsideOf(p netip.Prefix, ranges []netip.Prefix) int {
	var inside []netip.Prefix

	for _, q := range ranges {
		switch {
		case !p.Overlaps(q):
		case q.Bits() <= p.Bits():
			return 0
		default:
			inside = append(inside, q)
		}
	}

	if len(inside) == 0 {
		return 1
	}

	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b := p.Addr().As4()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	n := outsideOf(low, inside) + outsideOf(netip.PrefixFrom(netip.AddrFrom4(b), p.Bits()+1), inside)

	return n
}
