package openflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Change is the difference between two sets of flows.
type Change struct {
	Write []string // new or changed flows, in the syntax of Flows
	Gone  []string // old flows; includes changed flows whose counter changes
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool { return len(c.Write)+len(c.Gone) == 0 }

// Planner plans the flows of one bridge repeatedly and returns the differences. If one of ten
// thousand Services changes, it formats only that one. The zero Planner has no flows. It is not
// safe for concurrent use.
type Planner struct {
	fixed  []string // all flows except those of frontends, sorted
	fronts map[verdict.ServiceKey]front
	toOVN  string // the actions used in fronts
	toHost string
}

// front is the flow of a frontend.
type front struct {
	owner verdict.ServiceOwner
	flow  string
}

// Flows plans the flows of the function Flows and returns the difference to the previous plan.
func (p *Planner) Flows(in Input) Change {
	b := newBuilder(in)
	b.demultiplexer()

	var c Change
	p.setFixed(b.sorted(), &c)
	p.setFronts(b, &c)

	return c
}

// Static does the same with the result of the function Static.
func (p *Planner) Static(in StaticInput) Change {
	var c Change
	p.setFixed(Static(in), &c)
	p.setFronts(nil, &c)

	return c
}

// All returns the whole plan, sorted.
func (p *Planner) All() []string {
	all := slices.Grow(slices.Clone(p.fixed), len(p.fronts))
	for _, f := range p.fronts {
		all = append(all, f.flow)
	}

	slices.Sort(all)

	return all
}

func (p *Planner) setFixed(want []string, c *Change) {
	have := p.fixed
	p.fixed = want

	for len(have) > 0 || len(want) > 0 {
		switch {
		case len(want) == 0 || len(have) > 0 && have[0] < want[0]:
			c.gone(have[0])
			have = have[1:]
		case len(have) == 0 || want[0] < have[0]:
			c.Write = append(c.Write, want[0])
			want = want[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}

	// A flow with the same match and other actions is in both lists. It stays in both if its counter
	// changes: its packet count then belongs to the removed flow.
	written := map[string]string{}
	for _, flow := range c.Write {
		written[Match(flow)] = flow
	}

	c.Gone = slices.DeleteFunc(c.Gone, func(flow string) bool {
		w, is := written[Match(flow)]
		return is && countedAs(w) == countedAs(flow)
	})
}

// countedAs returns the part of a flow that names its counter.
func countedAs(flow string) string {
	_, number, _ := strings.Cut(flow, " #")
	return number
}

func (c *Change) gone(flow string) { c.Gone = append(c.Gone, flow) }

// Match returns the part of a flow before its actions. It is unique on a bridge.
func Match(flow string) string {
	match, _, _ := strings.Cut(flow, " actions=")
	return match
}

// setFronts plans the frontends. A nil b means no frontends.
func (p *Planner) setFronts(b *builder, c *Change) {
	if b == nil {
		b = &builder{}
	}

	toOVN, toHost := strings.Join(b.toOVN, ","), strings.Join(b.toHost, ",")

	if p.fronts == nil {
		p.fronts = map[verdict.ServiceKey]front{}
	}

	p.outdate(verdict.ServiceOVN, toOVN != p.toOVN)
	p.outdate(verdict.ServiceHost, toHost != p.toHost)
	p.toOVN, p.toHost = toOVN, toHost

	left := len(p.fronts)
	for k, owner := range b.services() {
		f, had := p.fronts[k]
		if had {
			left--
		}

		if f.owner == owner {
			continue
		}

		actions, reason := toOVN, verdict.Service
		if owner == verdict.ServiceHost {
			actions, reason = toHost, verdict.ServiceHosted
		}

		was := f.flow
		f = front{owner, frontend(k, actions+suffix(number(reason)))}
		p.fronts[k] = f

		if had && countedAs(was) != countedAs(f.flow) {
			c.gone(was)
		}

		c.Write = append(c.Write, f.flow)
	}

	if left == 0 {
		return
	}

	served := maps.Collect(b.services())
	for k, f := range p.fronts {
		if _, ok := served[k]; !ok {
			delete(p.fronts, k)
			c.gone(f.flow)
		}
	}
}

// outdate marks an owner's flows to be rewritten if their actions changed. With the same match they
// replace the old flows.
func (p *Planner) outdate(owner verdict.ServiceOwner, other bool) {
	for k, f := range p.fronts {
		if other && f.owner == owner {
			f.owner = verdict.ServiceNone
			p.fronts[k] = f
		}
	}
}
