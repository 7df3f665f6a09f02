package gateway

import (
	"context"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// flowBackend is the OpenFlow backend. It consists of flows only: uplink and bridge have no
// programs.
type flowBackend struct {
	parts
	earlier     earlierPrograms
	counts      *ovs.FlowCounts
	connections frontendConnections
}

// run watches flows and the host's connections until ctx ends.
func (f *flowBackend) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.flows.run(ctx) })
	group.Go(func() error { return f.counts.Run(ctx) })
	group.Go(func() error { return f.connections.run(ctx, f.wake) })

	return group.Wait()
}

// sync writes the flows before it removes the programs that they replace. In the calls, nil
// stands for the programs that this backend does not have.
func (f *flowBackend) sync(ctx context.Context, st state) error {
	f.host.syncProtos(nil)

	err := f.host.syncSockets(nil)
	if err != nil || st.host.Bridge == nil {
		return err // without a bridge there are no flows to write
	}

	if err := f.syncFlows(ctx, st); err != nil {
		return err
	}

	if err := f.detach(); err != nil {
		return err
	}

	// No programs are at the uplink, which would use the lookup of sockets and the table of Services.
	f.services.openHost(socketsOnly)

	return f.services.write(nil)
}

func (f *flowBackend) syncFlows(ctx context.Context, st state) error {
	frontends := f.services.frontends()

	connections, err := f.connections.listAt(frontends, st.addrs)
	if err != nil {
		return err
	}

	sockets := slices.Concat(f.host.sockets, connections)

	return f.flows.sync(ctx, st, func(st state, ports openflow.Ports) openflow.Change {
		return f.flows.planner.Flows(st.flowInput(ports, frontends, sockets, f.host.protos))
	})
}

// syncHooks removes the programs of an earlier agent.
func (f *flowBackend) syncHooks(context.Context, state) error { return f.earlier.remove() }

// prepare opens the programs of an earlier agent, so that syncHooks removes them fast.
func (f *flowBackend) prepare(bpf.Config) error { return f.earlier.open() }

// passToHost does nothing: the host's flows depend neither on its address nor on OVN.
func (f *flowBackend) passToHost() error { return nil }

func (f *flowBackend) detach() error { return f.earlier.remove() }

func (f *flowBackend) close() error {
	f.host.close()
	return nil
}

// counters returns the decisions of the flows since run began.
func (f *flowBackend) counters(ctx context.Context) ([]bpf.Counter, error) {
	sums, err := f.counts.Read(ctx)
	if err != nil {
		return nil, err
	}

	return flowCounters(sums), nil
}

// FlowReasons lists the reasons that the OpenFlow backend counts. The counts are zero.
func FlowReasons() []bpf.Counter { return flowCounters(flowSums{}) }

// counterOf returns the counter of a count, with no packets.
func counterOf(c openflow.Count) bpf.Counter {
	return bpf.CounterOf(verdict.Rule{Name: c.Reason, Verdict: c.Verdict, Direction: c.Direction})
}

// flowNumbers returns the numbers under which flows count.
func flowNumbers() []uint8 {
	var numbers []uint8
	for _, c := range openflow.Counts() {
		numbers = append(numbers, c.Number)
	}

	return numbers
}

// CountsFlows reports whether flows decide and count.
func (s Settings) CountsFlows() bool { return s.Backend == OpenFlow && !s.leavesUplinkAlone() }

// ReadFlowCounters returns the decisions of the flows on a bridge, each counted since the flow was
// written. It needs no agent. Only a running agent knows the counts of flows that were replaced
// meanwhile, such as those of a changed Service.
func ReadFlowCounters(ctx context.Context, ovsRunDir, bridge string) ([]bpf.Counter, error) {
	sums, err := ovs.ReadFlowSums(ctx, ovsRunDir, bridge, flowNumbers())
	if err != nil {
		return nil, err
	}

	return flowCounters(sums), nil
}

// flowSums are the counts of flows by the number of their reason.
type flowSums = [math.MaxUint8 + 1]ovs.FlowCount

// flowCounters returns a counter for each number in use, with its sum.
func flowCounters(sums flowSums) []bpf.Counter {
	var out []bpf.Counter

	for _, c := range openflow.Counts() {
		n := counterOf(c)
		n.Packets, n.Bytes = sums[c.Number].Packets, sums[c.Number].Bytes
		out = append(out, n)
	}

	return out
}
