package corpus

import (
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Case is one frame at one node.
type Case struct {
	Name    string // unique
	Layouts []verdict.Layout
	Node    *Node // shared with other cases
	Dir     verdict.Direction
	Frame   []byte
	Want    verdict.Reason
	Mangled bool // truncated, or with contradicting headers: OVS may parse it differently
}

// In reports whether c applies to a layout.
func (c Case) In(l verdict.Layout) bool { return slices.Contains(c.Layouts, l) }

// row is a case before expansion: the frame has no tag yet.
type row struct {
	name  string
	dir   verdict.Direction
	frame []byte
	want  verdict.Reason
	local verdict.Reason // in local gateway mode

	isMangled bool
}

// rx returns a case of a frame from the wire, tx one from OVN, and hx one from the host.
func rx(name string, want verdict.Reason, frame []byte) row {
	return row{name: name, dir: verdict.FromWire, frame: frame, want: want, local: want}
}

func tx(name string, want verdict.Reason, frame []byte) row {
	return row{name: name, dir: verdict.FromOVN, frame: frame, want: want, local: want}
}

func hx(name string, want verdict.Reason, frame []byte) row {
	return row{name: name, dir: verdict.FromHost, frame: frame, want: want, local: want}
}

// inLocal sets the reason of r in local gateway mode.
func (r row) inLocal(want verdict.Reason) row {
	r.local = want
	return r
}

// mangled marks r as Mangled.
func (r row) mangled() row {
	r.isMangled = true
	return r
}

// set is a list of rows and the nodes they apply to.
type set struct {
	name     string
	rows     func(Family) []row
	families []Family
	layouts  []verdict.Layout // nil: all that the frame's direction and the node support
	nodes    []*Node
	raw      bool // the rows already have their tags
}

// Cases returns all named cases, sorted by node.
func Cases() []Case {
	var all []Case

	for _, s := range sets() {
		for _, n := range s.nodes {
			for _, f := range s.families {
				all = append(all, s.expand(n, f)...)
			}
		}
	}

	order := make(map[*Node]int)
	for _, c := range all {
		if _, ok := order[c.Node]; !ok {
			order[c.Node] = len(order)
		}
	}

	slices.SortStableFunc(all, func(a, b Case) int { return order[a.Node] - order[b.Node] })

	return all
}

// expand returns the cases of s for one node and family.
func (s set) expand(n *Node, f Family) []Case {
	var cases []Case

	for _, r := range s.rows(f) {
		c := Case{
			Name: n.Name + "/" + f.Name + "/" + r.dir.String() + "/" + s.name + "/" + r.name, Layouts: s.layouts,
			Node: n, Dir: r.dir, Frame: r.frame, Want: r.want, Mangled: r.isMangled,
		}
		if n.Config.Local {
			c.Want = r.local
		}

		if c.Layouts == nil {
			c.Layouts = layouts(n, r.dir)
		}

		if n.Config.VLAN != 0 && !s.raw && r.dir != verdict.FromHost {
			c.Frame = Tag(n.Config.VLAN, r.frame)
		}

		cases = append(cases, c)
	}

	return cases
}

// layouts returns the layouts in which a direction and a node's configuration exist. Only direct
// uses the userspace datapath's tunnel address. Only bridged sees packets of the host, and only
// bridged has a gateway VLAN.
func layouts(n *Node, dir verdict.Direction) []verdict.Layout {
	switch {
	case n.Config.EncapIP.IsValid():
		return []verdict.Layout{verdict.Direct}
	case dir == verdict.FromHost, n.Config.VLAN != 0:
		return []verdict.Layout{verdict.Bridged}
	}

	return []verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Dedicated}
}
