package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// flowServices sums the counts of frontend flows by Service port. A rewritten flow starts at zero;
// packets that it counted after the last read are lost.
type flowServices struct {
	most int // limit of Service ports with counts

	mu    sync.Mutex // guards the fields below
	ports map[verdict.ServiceKey]bpf.ServicePort
	takes uint64
	last  map[verdict.ServiceKey]ovs.FlowCount // counts at the last read
	sums  map[bpf.ServicePort]ovs.FlowCount
}

// newFlowServices returns nil if flows do not count or counting is disabled.
func newFlowServices(s Settings) *flowServices {
	if !s.CountsFlows() || s.Local || s.CountServices <= 0 {
		return nil
	}

	return &flowServices{
		most:  s.CountServices,
		ports: map[verdict.ServiceKey]bpf.ServicePort{},
		sums:  map[bpf.ServicePort]ovs.FlowCount{},
	}
}

// set maps frontends to Service ports; the zero port removes a frontend. full means that changes
// lists all frontends.
func (f *flowServices) set(changes map[verdict.ServiceKey]bpf.ServicePort, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if full {
		clear(f.ports)
	}

	for k, port := range changes {
		if port == (bpf.ServicePort{}) {
			delete(f.ports, k)
		} else {
			f.ports[k] = port
		}
	}
}

// frontends returns the Service port of every frontend.
func (f *flowServices) frontends() map[verdict.ServiceKey]bpf.ServicePort {
	f.mu.Lock()
	defer f.mu.Unlock()

	return maps.Clone(f.ports)
}

// counts reads the flows and returns the sums. On a read error it returns the previous sums.
func (f *flowServices) counts(
	read func() ([]ovs.FrontFlow, error),
) (counts []bpf.ServiceCount, uncounted int, err error) {
	f.mu.Lock()
	takes := f.takes
	f.mu.Unlock()

	flows, err := read()

	f.mu.Lock()
	defer f.mu.Unlock()

	switch {
	case err != nil && f.takes == 0:
		return nil, 0, err
	case err == nil && f.takes == takes: // otherwise a concurrent read has finished, maybe with newer counts
		f.take(flows)
		f.takes++
	}

	uncounted = f.room()
	for port, n := range f.sums {
		counts = append(counts, bpf.ServiceCount{ServicePort: port, Packets: n.Packets, Bytes: n.Bytes})
	}

	slices.SortFunc(counts,
		func(a, b bpf.ServiceCount) int { return comparePorts(a.ServicePort, b.ServicePort) })

	return counts, uncounted, nil
}

// take adds the counts since the last read. The first read adds nothing, because the flows may be
// from an earlier agent.
func (f *flowServices) take(flows []ovs.FrontFlow) {
	f.room()

	now := make(map[verdict.ServiceKey]ovs.FlowCount, len(flows))
	for _, x := range flows {
		k := verdict.ServiceKey{Addr: x.Addr, Proto: x.Proto, Port: x.Port}
		now[k] = x.FlowCount
		port := f.ports[k]
		sum, counted := f.sums[port]

		if !counted || f.last == nil {
			continue
		}

		more, was := x.FlowCount, f.last[k]
		if more.Packets >= was.Packets && more.Bytes >= was.Bytes {
			more = ovs.FlowCount{Packets: more.Packets - was.Packets, Bytes: more.Bytes - was.Bytes}
		}

		f.sums[port] = ovs.FlowCount{Packets: sum.Packets + more.Packets, Bytes: sum.Bytes + more.Bytes}
	}

	f.last = now
}

// room allocates sums for ports, up to the limit, and releases those of deleted ports. It returns
// the number of ports without a sum.
func (f *flowServices) room() (without int) {
	there := make(map[bpf.ServicePort]bool, len(f.ports))

	var come []bpf.ServicePort

	for _, port := range f.ports {
		if _, has := f.sums[port]; !has && !there[port] {
			come = append(come, port)
		}

		there[port] = true
	}

	for port := range f.sums {
		if !there[port] {
			delete(f.sums, port)
		}
	}

	slices.SortFunc(come, comparePorts)

	for _, port := range come {
		if len(f.sums) >= f.most {
			without++
			continue
		}

		f.sums[port] = ovs.FlowCount{}
	}

	return without
}

func comparePorts(a, b bpf.ServicePort) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
}

// readWait limits the time that ovs-vswitchd may take to list the frontend flows.
const readWait = 2 * time.Second

func (s *Services) readFlows() ([]ovs.FrontFlow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readWait)
	defer cancel()

	numbers := []uint8{
		openflow.CountOf(verdict.Service).Number,
		openflow.CountOf(verdict.ServiceHosted).Number,
	}

	return ovs.ReadFrontFlows(ctx, s.settings.OVSRunDir, s.settings.Bridge, numbers)
}
