package bpf

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The mix is for three Service ports, with room for the counts of two.
var servicePorts = map[uint16]ServicePort{
	30080: {Namespace: "default", Name: "web", Proto: protoTCP, Port: 80},
	443:   {Namespace: "default", Name: "web", Proto: protoTCP, Port: 443},
	30053: {Namespace: "kube-system", Name: "dns", Proto: protoUDP, Port: 53},
}

func countServices(t *testing.T, g *Gateway) {
	t.Helper()

	for _, changes := range []map[verdict.ServiceKey]ServicePort{
		{{Addr: v4.node, Proto: protoTCP, Port: 30080}: servicePorts[30080], {Addr: v6.node, Proto: protoTCP, Port: 30080}: servicePorts[30080]},
		{{Addr: v4.vip, Proto: protoTCP, Port: 443}: servicePorts[443], {Addr: v6.vip, Proto: protoTCP, Port: 443}: servicePorts[443]},
		{{Addr: v4.node, Proto: protoUDP, Port: 30053}: servicePorts[30053], {Addr: v6.node, Proto: protoUDP, Port: 30053}: servicePorts[30053]},
	} {
		if err := g.CountServices(changes); err != nil {
			t.Fatal(err)
		}
	}
}

// checkServices checks that the cell of a deleted Service is reused, and empty.
func (m *mix) checkServices(t *testing.T, g *Gateway) {
	t.Helper()

	of := func(port uint16) ServiceCount {
		return ServiceCount{servicePorts[port], m.ports[port].Packets, m.ports[port].Bytes}
	}
	wantServices(t, g, 1, of(30080), of(443))

	gone := map[verdict.ServiceKey]ServicePort{{Addr: v4.node, Proto: protoTCP, Port: 30080}: {}}
	if err := g.CountServices(gone); err != nil {
		t.Fatal(err)
	}

	wantServices(t, g, 1, of(30080), of(443)) // it still has an address

	if err := g.CountServices(map[verdict.ServiceKey]ServicePort{{Addr: v6.node, Proto: protoTCP, Port: 30080}: {}}); err != nil {
		t.Fatal(err)
	}

	wantServices(t, g, 0, of(443), ServiceCount{ServicePort: servicePorts[30053]})
}

func wantServices(t *testing.T, g *Gateway, uncounted int, want ...ServiceCount) {
	t.Helper()

	got, over, err := g.ServiceCounts()
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" || over != uncounted {
		t.Errorf("%d not counted, want %d; services (-sent +counted):\n%s", over, uncounted, diff)
	}
}
