// Package busy estimates the busiest flows of each class, from a sample of decisions and the exact
// counters. It is pure.
package busy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Flow identifies the packets of one transport connection in one direction that one reason decides.
// For protocols without ports it identifies a pair of addresses.
type Flow struct {
	Src, Dst netip.AddrPort // for ARP, sender and target; invalid for other protocols than ARP and IP
	Type     uint16         // EtherType
	Proto    uint8          // IP protocol, or 0
	Reason   string
}

// Rate is a number of packets and bytes, in total or per second.
type Rate struct {
	Packets float64 `json:"packets"`
	Bytes   float64 `json:"bytes"`
}

func (r Rate) plus(s Rate) Rate { return Rate{r.Packets + s.Packets, r.Bytes + s.Bytes} }

func (r Rate) times(f float64) Rate { return Rate{r.Packets * f, r.Bytes * f} }

// Class is the origin of packets, and the verdict on them.
type Class struct{ Direction, Port, Verdict string }

func classOf(c bpf.Counter) Class { return Class{c.Direction, c.Port, c.Verdict} }

// RatedFlow is a flow and its rate per second.
type RatedFlow struct {
	Flow
	Rate Rate
}

// Group is one class with its exact rate, and its busiest flows with estimated rates.
type Group struct {
	Class Class
	Rate  Rate
	Flows []RatedFlow // busiest first
}

// Tally sums up a sample.
type Tally struct {
	layout  verdict.Layout
	flows   map[Flow]Rate
	reasons map[string]Rate
}

// New returns an empty Tally for a sample of a gateway in that layout.
func New(layout verdict.Layout) *Tally {
	return &Tally{layout: layout, flows: map[Flow]Rate{}, reasons: map[string]Rate{}}
}

// Add records a decision on a frame of length bytes. f may be parsed from its first bytes only.
func (t *Tally) Add(reason string, f verdict.Frame, length int) {
	flow := Flow{Type: f.Type, Reason: reason}
	switch p := &f.IP; {
	case p.Src.IsValid() && p.Dst.IsValid():
		flow.Proto = p.Proto
		flow.Src, flow.Dst = netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)
	case f.ARP.Sender.IsValid():
		flow.Src, flow.Dst = netip.AddrPortFrom(f.ARP.Sender, 0), netip.AddrPortFrom(f.ARP.Target, 0)
	}

	one := Rate{1, float64(length)}
	t.flows[flow] = t.flows[flow].plus(one)
	t.reasons[reason] = t.reasons[reason].plus(one)
}

// Groups returns the classes that had packets, busiest first, each with up to most flows. The exact
// count of a reason between before and after is divided among its flows in proportion to the
// sample. The result is exact if the sample contains every packet.
func (t *Tally) Groups(before, after []bpf.Counter, seconds float64, most int) []Group {
	had := map[string]bpf.Counter{}
	for _, c := range before {
		had[c.Reason] = c
	}

	groups := map[Class]*Group{}
	classes := map[string]Class{}
	exact := map[string]Rate{}

	for _, c := range after {
		b := had[c.Reason]
		if c.Packets <= b.Packets {
			continue
		}

		rate := Rate{float64(c.Packets - b.Packets), float64(c.Bytes - b.Bytes)}.times(1 / seconds)
		class := classOf(c)
		reason := t.sampledAs(c.Reason)
		classes[reason], exact[reason] = class, exact[reason].plus(rate)

		if groups[class] == nil {
			groups[class] = &Group{Class: class}
		}

		groups[class].Rate = groups[class].Rate.plus(rate)
	}

	for flow, seen := range t.flows {
		g, sum := groups[classes[flow.Reason]], t.reasons[flow.Reason]
		if g == nil || exact[flow.Reason].Packets == 0 {
			continue // sampled before its counter was incremented
		}

		all := exact[flow.Reason]
		share := Rate{all.Packets * seen.Packets / sum.Packets, all.Bytes * seen.Bytes / max(sum.Bytes, 1)}
		g.Flows = append(g.Flows, RatedFlow{flow, share})
	}

	out := make([]Group, 0, len(groups))
	for _, g := range groups {
		slices.SortFunc(g.Flows,
			func(a, b RatedFlow) int { return cmp.Or(byRate(a.Rate, b.Rate), byFlow(a.Flow, b.Flow)) })
		g.Flows = g.Flows[:min(most, len(g.Flows))]
		out = append(out, *g)
	}

	name := func(g Group) string { return g.Class.Direction + g.Class.Port + g.Class.Verdict }

	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(byRate(a.Rate, b.Rate), cmp.Compare(name(a), name(b)))
	})

	return out
}

// sampledAs returns the reason in samples of packets that the gateway counts for reason. The sampling
// programs do not look up shortcuts, so their samples have the reason without a shortcut. In layout
// direct, packets that pods send by a shortcut pass no sampling program: OutCached has no samples.
func (t *Tally) sampledAs(reason string) string {
	switch {
	case reason == verdict.SNATCached.String():
		return verdict.SNATPort.String()
	case reason == verdict.ServiceCached.String():
		return verdict.Service.String()
	case reason == verdict.OutCached.String() && t.layout == verdict.Bridged:
		return verdict.OutPlain.String()
	}

	return reason
}

func byRate(a, b Rate) int {
	return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Packets, a.Packets))
}

func byFlow(a, b Flow) int {
	return cmp.Or(a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type))
}
