package openflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
)

// Change is what makes one set of flows another.
type Change struct {
	Write []string // new, or with other actions; as Flows spells them
	Gone  []string // as they were; also of those to write, what counts as something else
}

// Empty tells whether there is nothing to do.
func (c Change) Empty() bool { return len(c.Write)+len(c.Gone) == 0 }

// Planner plans the flows of one bridge again and again, and says what has become
// different. Of ten thousand Services, of which one has changed, it spells one.
// The zero Planner has no flows. It is not for concurrent use.
type Planner struct {
	fixed  []string // those of no front end, sorted
	fronts map[verdict.ServiceKey]front
	toOVN  string // the actions that are in fronts
	toHost string
}

// front is a front end's flow.
type front struct {
	owner verdict.ServiceOwner
	flow  string
}

// Flows plans what the function Flows returns, and returns the difference to the
// plan before.
func (p *Planner) Flows(in Input) Change {
	b := newBuilder(in)
	b.demultiplexer()
	var c Change
	p.setFixed(b.sorted(), &c)
	p.setFronts(b, &c)
	return c
}

// Static does for the function Static what Flows does for Flows.
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
	// One that only has other actions is in both. It stays in both if it counts as
	// something else: what it has counted is then what went.
	written := map[string]string{}
	for _, flow := range c.Write {
		written[Match(flow)] = flow
	}
	c.Gone = slices.DeleteFunc(c.Gone, func(flow string) bool {
		w, is := written[Match(flow)]
		return is && countedAs(w) == countedAs(flow)
	})
}

// countedAs returns the suffix that says what a flow counts as.
func countedAs(flow string) string {
	_, number, _ := strings.Cut(flow, " #")
	return number
}

func (c *Change) gone(flow string) { c.Gone = append(c.Gone, flow) }

// Match returns what a flow has before its actions: no two of a bridge have the same.
func Match(flow string) string {
	match, _, _ := strings.Cut(flow, " actions=")
	return match
}

// setFronts plans the front ends; b nil: there are none.
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
		f = front{owner, frontEnd(k, actions+suffix(number(reason)))}
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

// outdate makes an owner's flows be written again if they have other actions now:
// under the same match, they take the others' place.
func (p *Planner) outdate(owner verdict.ServiceOwner, other bool) {
	for k, f := range p.fronts {
		if other && f.owner == owner {
			f.owner = verdict.ServiceNone
			p.fronts[k] = f
		}
	}
}
