package gateway

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestFlowServices(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	key := func(a netip.Addr, port uint16) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: a, Proto: 6, Port: port}
	}
	port := func(name string) bpf.ServicePort {
		return bpf.ServicePort{Namespace: "default", Name: name, Proto: 6, Port: 80}
	}
	flow := func(a netip.Addr, port uint16, packets uint64) ovs.FrontFlow {
		return ovs.FrontFlow{Addr: a, Proto: 6, Port: port, FlowCount: ovs.FlowCount{Packets: packets, Bytes: 100 * packets}}
	}
	flows := Wiring{Backend: OpenFlow, Layout: verdict.Bridged}
	f := newFlowServiceCounts(Settings{Wiring: flows, CountServices: 2})
	f.setFrontends(map[verdict.ServiceKey]bpf.ServicePort{key(a, 30001): port("one"), key(b, 30001): port("one"), key(a, 30002): port("two")})

	check := func(what string, flows []ovs.FrontFlow, uncounted int, want map[string]uint64) {
		t.Helper()

		counts, over, err := f.read(func() ([]ovs.FrontFlow, error) { return flows, nil })

		got := map[string]uint64{}
		for _, c := range counts {
			got[c.Name] = c.Packets
			if c.Bytes != 100*c.Packets {
				t.Errorf("%s: %+v", what, c)
			}
		}

		if diff := cmp.Diff(want, got); err != nil || over != uncounted || diff != "" {
			t.Errorf("%s: %d uncounted, error %v %s", what, over, err, diff)
		}
	}

	if _, _, err := f.read(func() ([]ovs.FrontFlow, error) { return nil, errors.New("no switch") }); err == nil {
		t.Error("counts without a read")
	}

	first := []ovs.FrontFlow{flow(a, 30001, 7), flow(a, 30002, 1)}
	check("earlier counts are not attributed", first, 0, map[string]uint64{"one": 0, "two": 0})
	check("a Service at two addresses, one of them new", []ovs.FrontFlow{flow(a, 30001, 9), flow(b, 30001, 4), flow(a, 30002, 1), flow(a, 9, 5)}, 0, map[string]uint64{"one": 6, "two": 0})
	check("a flow is written again", []ovs.FrontFlow{flow(a, 30001, 3), flow(b, 30001, 4), flow(a, 30002, 2)}, 0, map[string]uint64{"one": 9, "two": 1})
	f.updateFrontends(map[verdict.ServiceKey]bpf.ServicePort{key(a, 30003): port("three")})
	check("no room for a third", []ovs.FrontFlow{flow(a, 30001, 3), flow(b, 30001, 4), flow(a, 30002, 2), flow(a, 30003, 8)}, 1, map[string]uint64{"one": 9, "two": 1})
	f.updateFrontends(map[verdict.ServiceKey]bpf.ServicePort{key(a, 30002): {}})
	check("one goes, the third has room and begins", []ovs.FrontFlow{flow(a, 30001, 3), flow(b, 30001, 4), flow(a, 30003, 10)}, 0, map[string]uint64{"one": 9, "three": 2})
	f.setFrontends(map[verdict.ServiceKey]bpf.ServicePort{key(a, 30003): port("three")})
	check("only the third is left", []ovs.FrontFlow{flow(a, 30003, 10)}, 0, map[string]uint64{"three": 2})

	counts, _, err := f.read(func() ([]ovs.FrontFlow, error) { return nil, errors.New("no switch") })
	if len(counts) != 1 || counts[0].Packets != 2 || err != nil {
		t.Errorf("without the switch it is what it was: %+v, error %v", counts, err)
	}
	// During this read a concurrent one finishes with later counts.
	counts, _, err = f.read(func() ([]ovs.FrontFlow, error) {
		check("the other", []ovs.FrontFlow{flow(a, 30003, 15)}, 0, map[string]uint64{"three": 7})
		return []ovs.FrontFlow{flow(a, 30003, 12)}, nil
	})
	if len(counts) != 1 || counts[0].Packets != 7 || err != nil {
		t.Errorf("older figures: %+v, error %v", counts, err)
	}

	for _, s := range []Settings{{Wiring: Wiring{Backend: EBPF, Layout: verdict.Bridged}, CountServices: 2}, {Wiring: flows, Cluster: Cluster{Local: true}, CountServices: 2}, {Wiring: flows}} {
		if newFlowServiceCounts(s) != nil {
			t.Errorf("counted: %+v", s)
		}
	}
}

// The owner of a frontend's counts follows the Services, whatever backend is written.
func TestFlowCountsFollowServices(t *testing.T) {
	r := newServingRig(t)
	f := newFlowServiceCounts(Settings{Wiring: Wiring{Backend: OpenFlow, Layout: verdict.Bridged}, CountServices: 10})
	r.flowCounts = f
	fronts := func(want ...int) {
		t.Helper()

		got := map[string]int{}

		for k, port := range f.ports {
			if k.Port < 30000 || port.Port != 80 {
				t.Errorf("%v is %v's", k, port)
			}

			got[port.Name]++
		}

		expected := map[string]int{}
		for _, i := range want {
			expected[serviceKey(i).Name] = len(r.node.Addresses)
		}

		if diff := cmp.Diff(expected, got); diff != "" {
			t.Error(diff)
		}
	}

	r.set(serviceKey(4), numbered(4, 1))
	r.set(serviceKey(8), numbered(8, 1))
	r.sync(t)
	fronts(4, 8)
	r.set(serviceKey(12), numbered(12, 1))
	r.set(serviceKey(4), service.Objects{})
	r.sync(t)
	fronts(8, 12)
}
