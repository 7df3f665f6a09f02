package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// flowServices adds up what the flows of front ends have counted, by port of a Service. A
// flow that is written anew begins at zero again: what it had counted since it was
// last read is lost.
type flowServices struct {
	most int // ports of Services that are counted

	mu    sync.Mutex // guards what follows
	ports map[bpf.ServiceKey]bpf.ServicePort
	takes uint64
	last  map[bpf.ServiceKey]ovs.FlowCount // when the flows were last read
	sums  map[bpf.ServicePort]ovs.FlowCount
}

// newFlowServices returns nil where no flows count, or none shall.
func newFlowServices(s Settings) *flowServices {
	if !s.CountsFlows() || s.Local || s.CountServices <= 0 {
		return nil
	}
	return &flowServices{most: s.CountServices, ports: map[bpf.ServiceKey]bpf.ServicePort{}, sums: map[bpf.ServicePort]ovs.FlowCount{}}
}

// set has some front ends be those of other ports, or nobody's (zero). full: there are no others.
func (f *flowServices) set(changes map[bpf.ServiceKey]bpf.ServicePort, full bool) {
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

// frontEnds returns the Service's port of every front end.
func (f *flowServices) frontEnds() map[bpf.ServiceKey]bpf.ServicePort {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.ports)
}

// counts reads the flows. Where they cannot be read it is what it was.
func (f *flowServices) counts(read func() ([]ovs.FrontFlow, error)) (counts []bpf.ServiceCount, uncounted int, err error) {
	f.mu.Lock()
	takes := f.takes
	f.mu.Unlock()
	flows, err := read()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && f.takes == 0:
		return nil, 0, err
	case err == nil && f.takes == takes: // else another has read meanwhile, maybe later figures
		f.take(flows)
		f.takes++
	}
	uncounted = f.room()
	for port, n := range f.sums {
		counts = append(counts, bpf.ServiceCount{ServicePort: port, Packets: n.Packets, Bytes: n.Bytes})
	}
	slices.SortFunc(counts, func(a, b bpf.ServiceCount) int { return comparePorts(a.ServicePort, b.ServicePort) })
	return counts, uncounted, nil
}

// take adds what flows have counted since they were last read. At the first time
// that is nothing: they may be an earlier agent's.
func (f *flowServices) take(flows []ovs.FrontFlow) {
	f.room()
	now := make(map[bpf.ServiceKey]ovs.FlowCount, len(flows))
	for _, x := range flows {
		k := bpf.ServiceKey{Addr: x.Addr, Proto: x.Proto, Port: x.Port}
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

// room gives ports a sum, as many as there may be, and takes it from those that are gone.
// It returns how many have none.
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
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
}

// readWait is for ovs-vswitchd to list the flows of front ends.
const readWait = 2 * time.Second

func (s *Services) readFlows() ([]ovs.FrontFlow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readWait)
	defer cancel()
	numbers := []uint8{openflow.CountOf(verdict.Service).Number, openflow.CountOf(verdict.ServiceHosted).Number}
	return ovs.ReadFrontFlows(ctx, s.s.OVSRunDir, s.s.Bridge, numbers)
}
