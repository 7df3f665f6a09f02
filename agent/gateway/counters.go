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
	var numbers []uint8
	for _, c := range openflow.Counts() {
		numbers = append(numbers, c.Number)
	}
	return ovs.NewFlowCounts(s.OVSRunDir, s.Bridge, numbers)
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
	var out []bpf.Counter
	for _, c := range openflow.Counts() {
		n := counterOf(c)
		n.Packets, n.Bytes = sums[c.Number].Packets, sums[c.Number].Bytes
		out = append(out, n)
	}
	return out, nil
}
