package gateway

import (
	"context"
	"errors"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// FlowReasons returns what the flows of the OpenFlow backend count, without figures.
func FlowReasons() []bpf.Counter {
	var out []bpf.Counter
	for _, c := range openflow.Counts() {
		out = append(out, counterOf(c))
	}
	return out
}

func counterOf(c openflow.Count) bpf.Counter {
	out := bpf.Counter{Direction: "tx", Verdict: c.Verdict.String(), Reason: c.Reason}
	switch {
	case c.Verdict == verdict.Drop && c.Direction == verdict.FromWire:
		out.Direction, out.Port = "rx", "none"
	case c.Verdict == verdict.Drop:
		out.Port = "none"
	case c.Direction == verdict.FromOVN:
		out.Port = "ovn"
	case c.Direction == verdict.FromHost:
		out.Port = "host"
	default:
		out.Direction, out.Port = "rx", c.Verdict.String()
	}
	return out
}

func newFlowCounts(s Settings) *ovs.FlowCounts {
	return ovs.NewFlowCounts(s.OVSRunDir, s.Bridge, flowNumbers())
}

func flowNumbers() []uint8 {
	var numbers []uint8
	for _, c := range openflow.Counts() {
		numbers = append(numbers, c.Number)
	}
	return numbers
}

// CountsFlows tells whether it is flows that decide, and count.
func (s Settings) CountsFlows() bool { return s.Backend == OpenFlow && !s.bare() }

// FlowCounters returns what the flows have decided since Run began, where they are
// what decides.
func (g *Gateway) FlowCounters(ctx context.Context) ([]bpf.Counter, error) {
	if !g.s.CountsFlows() {
		return nil, errors.New("read counters of flows: they do not decide here")
	}
	sums, err := g.counts.Read(ctx)
	if err != nil {
		return nil, err
	}
	return flowCounters(func(n uint8) ovs.FlowCount { return sums[n] }), nil
}

// ReadFlowCounters returns what the flows that are on a bridge have decided since
// each was written. No agent is needed; what flows have counted that have gone since,
// as with a Service that changed, only a running agent knows.
func ReadFlowCounters(ctx context.Context, ovsRunDir, bridge string) ([]bpf.Counter, error) {
	sums, err := ovs.ReadFlowSums(ctx, ovsRunDir, bridge, flowNumbers())
	if err != nil {
		return nil, err
	}
	return flowCounters(func(n uint8) ovs.FlowCount { return sums[n] }), nil
}

func flowCounters(sum func(number uint8) ovs.FlowCount) []bpf.Counter {
	var out []bpf.Counter
	for _, c := range openflow.Counts() {
		n := counterOf(c)
		n.Packets, n.Bytes = sum(c.Number).Packets, sum(c.Number).Bytes
		out = append(out, n)
	}
	return out
}
