// Package busy estimates the busiest flows of each class of packets, for ovnkube gateway top. The
// gateway's counters have the exact rate of each reason. A sample of decisions has the proportions
// of the flows within a reason. Their product is a flow's rate. The package is pure.
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

// share returns the part of r that a flow has. sampled is the flow's part of the sample, and all is
// the whole sample. all must have packets.
func (r Rate) share(sampled, all Rate) Rate {
	// Without sampled bytes, 0/0 would be NaN, which JSON cannot express.
	return Rate{r.Packets * sampled.Packets / all.Packets, r.Bytes * sampled.Bytes / max(all.Bytes, 1)}
}

// Class is the origin of packets, and the verdict on them. Its fields have the values of
// bpf.Counter: Port is the receiver or sender, which is host, ovn, both or none.
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

// Tally sums up a sample. Its Rates are totals, not per second. It is not safe for concurrent use.
type Tally struct {
	layout  verdict.Layout
	flows   map[Flow]Rate
	reasons map[string]Rate // sums of the flows of each reason
}

// New returns an empty Tally for a sample of a gateway in that layout.
func New(layout verdict.Layout) *Tally {
	return &Tally{layout: layout, flows: map[Flow]Rate{}, reasons: map[string]Rate{}}
}

// Add records a decision on a frame of length bytes. f may be parsed from its first bytes only.
func (t *Tally) Add(reason string, f verdict.Frame, length int) {
	flow, packet := flowOf(reason, f), Rate{1, float64(length)}
	t.flows[flow] = t.flows[flow].plus(packet)
	t.reasons[reason] = t.reasons[reason].plus(packet)
}

func flowOf(reason string, f verdict.Frame) Flow {
	flow := Flow{Type: f.Type, Reason: reason}

	switch p := &f.IP; {
	case p.Src.IsValid() && p.Dst.IsValid():
		flow.Proto = p.Proto
		flow.Src, flow.Dst = netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)
	case f.ARP.Sender.IsValid():
		flow.Src, flow.Dst = netip.AddrPortFrom(f.ARP.Sender, 0), netip.AddrPortFrom(f.ARP.Target, 0)
	}

	return flow
}

// Groups returns the classes that had packets, busiest first, each with up to maxFlows flows. The
// exact count of a reason between before and after is divided among its flows in proportion to the
// sample. seconds is the time between the two. The result is exact if the sample contains every
// packet.
func (t *Tally) Groups(before, after []bpf.Counter, seconds float64, maxFlows int) []Group {
	counted := t.countedRates(before, after, seconds)
	groups := groupByClass(counted)
	totals := totalByReason(counted)

	for flow, sampled := range t.flows {
		total, ok := totals[flow.Reason]
		if !ok {
			continue // packets are sampled before they are counted, here after the last read
		}

		rate := total.rate.share(sampled, t.reasons[flow.Reason])
		g := groups[total.class]
		g.Flows = append(g.Flows, RatedFlow{flow, rate})
	}

	return busiestFirst(groups, maxFlows)
}

// countedRate is the exact rate of the packets of one counter, or of all counters of a reason.
type countedRate struct {
	class  Class
	reason string // in the sample, see sampledAs
	rate   Rate
}

// countedRates returns the rates of the counters that have increased, in the order of after.
func (t *Tally) countedRates(before, after []bpf.Counter, seconds float64) []countedRate {
	previous := map[string]bpf.Counter{}
	for _, c := range before {
		previous[c.Reason] = c
	}

	var rates []countedRate

	for _, c := range after {
		p := previous[c.Reason]
		if c.Packets <= p.Packets {
			continue
		}

		increase := Rate{float64(c.Packets - p.Packets), float64(c.Bytes - p.Bytes)}
		rates = append(rates, countedRate{classOf(c), t.sampledAs(c.Reason), increase.times(1 / seconds)})
	}

	return rates
}

// sampledAs returns the reason in samples of packets that the gateway counts for reason. The
// sampling programs do not look up shortcuts, so their samples have the reason without a shortcut.
// In layout direct, packets that pods send by a shortcut pass no sampling program: OutCached has no
// samples.
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

// groupByClass returns a group without flows for each class.
func groupByClass(counted []countedRate) map[Class]*Group {
	groups := map[Class]*Group{}

	for _, c := range counted {
		if groups[c.class] == nil {
			groups[c.class] = &Group{Class: c.class}
		}

		groups[c.class].Rate = groups[c.class].Rate.plus(c.rate)
	}

	return groups
}

// totalByReason adds up the rates that have the same reason in the sample. They have the same
// class, because a shortcut does not change the verdict.
func totalByReason(counted []countedRate) map[string]countedRate {
	totals := map[string]countedRate{}

	for _, c := range counted {
		c.rate = c.rate.plus(totals[c.reason].rate)
		totals[c.reason] = c
	}

	return totals
}

// busiestFirst sorts the groups and their flows, and keeps up to maxFlows flows of each.
func busiestFirst(groups map[Class]*Group, maxFlows int) []Group {
	sorted := make([]Group, 0, len(groups))

	for _, g := range groups {
		slices.SortFunc(g.Flows, func(a, b RatedFlow) int {
			return cmp.Or(byRate(a.Rate, b.Rate), byFlow(a.Flow, b.Flow))
		})

		g.Flows = g.Flows[:min(maxFlows, len(g.Flows))]
		sorted = append(sorted, *g)
	}

	slices.SortFunc(sorted, func(a, b Group) int {
		return cmp.Or(byRate(a.Rate, b.Rate), byClass(a.Class, b.Class))
	})

	return sorted
}

// byRate compares for a descending order, by bytes first.
func byRate(a, b Rate) int {
	return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Packets, a.Packets))
}

// byFlow makes the order of flows with the same rate definite, as byClass does for classes.
func byFlow(a, b Flow) int {
	return cmp.Or(a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type))
}

func byClass(a, b Class) int {
	return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.Verdict, b.Verdict))
}
