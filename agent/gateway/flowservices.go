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

// flowServiceCounts sums the counts of frontend flows by Service port. A rewritten flow starts at
// zero, and packets that it counted after the last read are lost. Its methods are safe for
// concurrent use.
type flowServiceCounts struct {
	maxPorts int // limit of Service ports with counts

	mu    sync.Mutex                             // guards the fields below
	ports map[verdict.ServiceKey]bpf.ServicePort // by frontend; a Service port may have several frontends
	reads uint64                                 // completed
	last  map[verdict.ServiceKey]ovs.FlowCount   // counts of the flows at the last read
	sums  map[bpf.ServicePort]ovs.FlowCount      // of the ports with counts
}

// newFlowServiceCounts returns nil if flows do not count or counting is disabled.
func newFlowServiceCounts(s Settings) *flowServiceCounts {
	if !s.CountsFlows() || s.Local || s.CountServices <= 0 {
		return nil
	}

	return &flowServiceCounts{
		maxPorts: s.CountServices,
		ports:    map[verdict.ServiceKey]bpf.ServicePort{},
		sums:     map[bpf.ServicePort]ovs.FlowCount{},
	}
}

// setFrontends maps exactly these frontends to Service ports.
func (f *flowServiceCounts) setFrontends(all map[verdict.ServiceKey]bpf.ServicePort) {
	f.mu.Lock()
	defer f.mu.Unlock()

	clear(f.ports)
	maps.Copy(f.ports, all)
}

// updateFrontends maps changed frontends to Service ports. The zero port removes a frontend.
func (f *flowServiceCounts) updateFrontends(changes map[verdict.ServiceKey]bpf.ServicePort) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for k, port := range changes {
		if port == (bpf.ServicePort{}) {
			delete(f.ports, k)
		} else {
			f.ports[k] = port
		}
	}
}

// frontends returns the Service port of every frontend.
func (f *flowServiceCounts) frontends() map[verdict.ServiceKey]bpf.ServicePort {
	f.mu.Lock()
	defer f.mu.Unlock()

	return maps.Clone(f.ports)
}

// read reads the flows and returns the sums. uncounted is the number of ports beyond the limit.
// After an error of readFlows it returns the previous sums, or the error if there are none.
func (f *flowServiceCounts) read(
	readFlows func() ([]ovs.FrontFlow, error),
) (counts []bpf.ServiceCount, uncounted int, err error) {
	f.mu.Lock()
	readsBefore := f.reads
	f.mu.Unlock()

	flows, err := readFlows() // slow

	f.mu.Lock()
	defer f.mu.Unlock()

	switch {
	case err != nil && f.reads == 0:
		return nil, 0, err
	case err == nil && f.reads == readsBefore: // otherwise a concurrent read has finished, maybe with newer counts
		f.add(flows)
		f.reads++
	}

	uncounted = f.allocateSums()
	for port, sum := range f.sums {
		counts = append(counts, bpf.ServiceCount{ServicePort: port, Packets: sum.Packets, Bytes: sum.Bytes})
	}

	slices.SortFunc(counts,
		func(a, b bpf.ServiceCount) int { return comparePorts(a.ServicePort, b.ServicePort) })

	return counts, uncounted, nil
}

// add adds what the flows have counted since the last read to the sums. The first read adds
// nothing, because the flows may be from an earlier agent. The caller must hold mu.
func (f *flowServiceCounts) add(flows []ovs.FrontFlow) {
	f.allocateSums()

	isFirstRead := f.last == nil
	now := make(map[verdict.ServiceKey]ovs.FlowCount, len(flows))

	for _, flow := range flows {
		k := verdict.ServiceKey{Addr: flow.Addr, Proto: flow.Proto, Port: flow.Port}
		now[k] = flow.FlowCount
		port := f.ports[k]

		sum, isCounted := f.sums[port]
		if !isCounted || isFirstRead {
			continue
		}

		// A lower count than before is that of a rewritten flow, all of it since the last read.
		added, before := flow.FlowCount, f.last[k]
		if added.Packets >= before.Packets && added.Bytes >= before.Bytes {
			added = ovs.FlowCount{Packets: added.Packets - before.Packets, Bytes: added.Bytes - before.Bytes}
		}

		f.sums[port] = ovs.FlowCount{Packets: sum.Packets + added.Packets, Bytes: sum.Bytes + added.Bytes}
	}

	f.last = now
}

// allocateSums allocates sums for ports, up to the limit, and releases those of deleted ports. It
// returns the number of ports without a sum. The caller must hold mu.
func (f *flowServiceCounts) allocateSums() (uncounted int) {
	existing := make(map[bpf.ServicePort]bool, len(f.ports))

	var added []bpf.ServicePort

	for _, port := range f.ports {
		if _, hasSum := f.sums[port]; !hasSum && !existing[port] {
			added = append(added, port)
		}

		existing[port] = true
	}

	for port := range f.sums {
		if !existing[port] {
			delete(f.sums, port)
		}
	}

	slices.SortFunc(added, comparePorts) // so that the choice does not depend on the order of the map

	for _, port := range added {
		if len(f.sums) >= f.maxPorts {
			uncounted++
			continue
		}

		f.sums[port] = ovs.FlowCount{}
	}

	return uncounted
}

func comparePorts(a, b bpf.ServicePort) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
}

// readTimeout limits the time that ovs-vswitchd may take to list the frontend flows.
const readTimeout = 2 * time.Second

// readFlows reads the frontends' flows with their counts.
func (s *Services) readFlows() ([]ovs.FrontFlow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()

	numbers := []uint8{
		openflow.CountOf(verdict.Service).Number,
		openflow.CountOf(verdict.ServiceHosted).Number,
	}

	return ovs.ReadFrontFlows(ctx, s.settings.OVSRunDir, s.settings.Bridge, numbers)
}
