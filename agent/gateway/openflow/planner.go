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
//
// The plan has two parts. The fixed flows are formatted and compared each time. The flow of a
// frontend depends only on its key, its owner and the owner's actions, so it is formatted when
// these change.
type Planner struct {
	fixed  []string // all flows except those of frontends, sorted
	fronts map[verdict.ServiceKey]front

	toOVN, toHost string // actions of the flows in fronts, by owner
}

// front is the planned flow of a frontend.
type front struct {
	owner verdict.ServiceOwner // ServiceNone: the flow is outdated
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

// setFixed replaces the fixed flows by want, and adds the difference to c. Both lists are sorted.
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
		replacement, ok := written[Match(flow)]
		return ok && countedAs(replacement) == countedAs(flow)
	})
}

// countedAs returns the number of a flow's counter as text, or "" (see suffix).
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

// setFronts plans the flows of frontends, and adds the difference to c. A nil b means no frontends.
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

	unseen := len(p.fronts)

	for k, owner := range b.services() {
		if p.setFront(k, owner, c) {
			unseen--
		}
	}

	if unseen > 0 {
		p.dropStaleFronts(b, c)
	}
}

// setFront plans the flow of a frontend, if its owner or the owner's actions have changed. It
// reports whether the previous plan had this frontend.
func (p *Planner) setFront(k verdict.ServiceKey, owner verdict.ServiceOwner, c *Change) (existed bool) {
	old, existed := p.fronts[k]
	if old.owner == owner {
		return existed
	}

	actions, reason := p.toOVN, verdict.Service
	if owner == verdict.ServiceHost {
		actions, reason = p.toHost, verdict.ServiceHosted
	}

	flow := frontend(k, actions+suffix(number(reason)))
	p.fronts[k] = front{owner, flow}

	if existed && countedAs(old.flow) != countedAs(flow) {
		c.gone(old.flow)
	}

	c.Write = append(c.Write, flow)

	return existed
}

// dropStaleFronts drops the flows of frontends that b does not have.
func (p *Planner) dropStaleFronts(b *builder, c *Change) {
	wanted := maps.Collect(b.services())

	for k, f := range p.fronts {
		if _, ok := wanted[k]; !ok {
			delete(p.fronts, k)
			c.gone(f.flow)
		}
	}
}

// outdate marks an owner's flows to be rewritten, if that owner's actions have changed. The
// rewritten flows have the same match, so they replace the old ones on the bridge.
func (p *Planner) outdate(owner verdict.ServiceOwner, haveChanged bool) {
	if !haveChanged {
		return
	}

	for k, f := range p.fronts {
		if f.owner == owner {
			f.owner = verdict.ServiceNone
			p.fronts[k] = f
		}
	}
}
