package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Tables holds the plans of all objects and says what of the node's tables a
// change of some of them changes. It has one owner; its methods are not for
// concurrent use.
//
// A front end that two objects ask for belongs to the older one, of the same age
// to the one with the smaller key, and to the other as soon as the first goes.
type Tables struct {
	claimants map[Key]*claimant
	holders   map[bpf.ServiceKey]*claimant   // who has a front end
	rivals    map[bpf.ServiceKey][]*claimant // who else wants it, best first; without an entry nobody
	vips      map[netip.Addr]int             // by how many plans
	udp       map[netip.AddrPort]int         // likewise
	before    before
}

type claimant struct {
	key  Key
	plan *Plan
}

// precedes is the order in which claimants get a front end.
func (c *claimant) precedes(o *claimant) bool {
	return c.owner().Precedes(o.owner())
}

func (c *claimant) owner() model.Owner {
	return model.Owner{Key: c.key, Created: c.plan.Created}
}

// NewTables returns empty Tables.
func NewTables() *Tables {
	return &Tables{
		claimants: map[Key]*claimant{},
		holders:   map[bpf.ServiceKey]*claimant{},
		rivals:    map[bpf.ServiceKey][]*claimant{},
		vips:      map[netip.Addr]int{},
		udp:       map[netip.AddrPort]int{},
		before:    newBefore(),
	}
}

// Set makes p the plan of k; nil deletes it. Tables keeps p, which must not
// change any more.
func (t *Tables) Set(k Key, p *Plan) {
	old := t.claimants[k]
	switch {
	case old == nil && p == nil || old != nil && p != nil && old.plan.equal(p):
		return
	case old != nil && p != nil && !old.plan.Created.Equal(p.Created):
		t.replace(k, old, nil) // another object of this name: it queues up anew
		old = nil
	}
	t.replace(k, old, p)
}

// Len is how many objects have a plan.
func (t *Tables) Len() int { return len(t.claimants) }

// Keys returns the keys of all objects that have a plan, in no order.
func (t *Tables) Keys() []Key {
	out := make([]Key, 0, len(t.claimants))
	for k := range t.claimants {
		out = append(out, k)
	}
	return out
}

// replace changes a claimant's plan. What it was like before must be noted
// for all that changes with it, so for rivals too, before anything does.
func (t *Tables) replace(k Key, c *claimant, p *Plan) {
	var old Plan
	if c == nil {
		c = &claimant{key: k}
	} else {
		old = *c.plan
	}
	var now Plan
	if p != nil {
		now = *p
	}
	t.note(k, old, now)
	for _, f := range old.FrontEnds {
		if _, stays := now.frontEnd(f.Key); !stays {
			t.release(c, f.Key)
		}
	}
	c.plan = p
	if p == nil {
		delete(t.claimants, k)
	} else {
		t.claimants[k] = c
	}
	for _, f := range now.FrontEnds {
		if _, stayed := old.frontEnd(f.Key); !stayed {
			t.claim(c, f.Key)
		}
	}
	count(t.vips, old.VIPs, now.VIPs)
	count(t.udp, old.UDP, now.UDP)
}

// note remembers the state of all that two plans of k mention.
func (t *Tables) note(k Key, plans ...Plan) {
	t.before.noteSockets(t, k)
	for _, p := range plans {
		for _, f := range p.FrontEnds {
			t.before.noteFrontEnd(t, f.Key)
			if h := t.holders[f.Key]; h != nil && h.key != k {
				t.before.noteSockets(t, h.key)
			}
			for _, r := range t.rivals[f.Key] {
				t.before.noteSockets(t, r.key)
			}
		}
		t.before.noteAddresses(t, p)
	}
}

func (t *Tables) claim(c *claimant, k bpf.ServiceKey) {
	holder := t.holders[k]
	if holder == nil {
		t.holders[k] = c
		return
	}
	if c.precedes(holder) {
		t.holders[k], c = c, holder
	}
	r := append(slices.Clip(t.rivals[k]), c)
	slices.SortFunc(r, func(a, b *claimant) int {
		if a.precedes(b) {
			return -1
		}
		return 1
	})
	t.rivals[k] = r
}

func (t *Tables) release(c *claimant, k bpf.ServiceKey) {
	r := t.rivals[k]
	switch {
	case t.holders[k] != c:
		r = slices.DeleteFunc(r, func(o *claimant) bool { return o == c })
	case len(r) > 0:
		t.holders[k], r = r[0], r[1:]
	default:
		delete(t.holders, k)
	}
	if len(r) == 0 {
		delete(t.rivals, k)
	} else {
		t.rivals[k] = r
	}
}

// count adds one for each of now and takes one for each of old.
func count[K comparable](m map[K]int, old, now []K) {
	for _, k := range now {
		m[k]++
	}
	for _, k := range old {
		if m[k]--; m[k] == 0 {
			delete(m, k)
		}
	}
}
