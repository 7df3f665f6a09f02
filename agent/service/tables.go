package service

import (
	"maps"
	"net/netip"
	"slices"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Tables holds the plans of all objects and reports the changes that an edit makes to the node's
// tables. Its methods must not be called concurrently.
//
// In a conflict, the older object holds the frontend. Among objects of the same age, the smaller
// key wins. When the holder releases the frontend, the next claimant gets it.
type Tables struct {
	claimants map[Key]*claimant
	holders   map[verdict.ServiceKey]*claimant   // the object that holds each frontend
	waiting   map[verdict.ServiceKey][]*claimant // other claimants, best first; no empty lists
	vips      map[netip.Addr]int                 // number of plans that have it
	udp       map[netip.AddrPort]int             // likewise
	before    previousState
}

type claimant struct {
	key  Key
	plan *Plan
}

// precedes reports whether c wins a conflict with o.
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
		holders:   map[verdict.ServiceKey]*claimant{},
		waiting:   map[verdict.ServiceKey][]*claimant{},
		vips:      map[netip.Addr]int{},
		udp:       map[netip.AddrPort]int{},
		before:    newPreviousState(),
	}
}

// Set makes p the plan of k; nil deletes it. Tables retains p, which must not be modified
// afterwards.
func (t *Tables) Set(k Key, p *Plan) {
	old := t.claimants[k]
	switch {
	case old == nil && p == nil || old != nil && p != nil && old.plan.equal(p):
		return
	case old != nil && p != nil && !old.plan.Created.Equal(p.Created):
		t.replace(k, old, nil) // recreated under the same name: it queues up again
		old = nil
	}

	t.replace(k, old, p)
}

// Len returns the number of objects that have a plan.
func (t *Tables) Len() int { return len(t.claimants) }

// Keys returns the keys of all objects that have a plan, in any order.
func (t *Tables) Keys() []Key { return slices.Collect(maps.Keys(t.claimants)) }

// replace changes a claimant's plan. First it records the previous state of all entries that
// change, including those of waiting claimants.
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

	for _, f := range old.Frontends {
		if _, stays := now.frontend(f.Key); !stays {
			t.release(c, f.Key)
		}
	}

	c.plan = p
	if p == nil {
		delete(t.claimants, k)
	} else {
		t.claimants[k] = c
	}

	for _, f := range now.Frontends {
		if _, stayed := old.frontend(f.Key); !stayed {
			t.claim(c, f.Key)
		}
	}

	count(t.vips, old.VIPs, now.VIPs)
	count(t.udp, old.UDP, now.UDP)
}

// note records the previous state of all entries that plans of k mention.
func (t *Tables) note(k Key, plans ...Plan) {
	t.before.noteSockets(t, k)

	for _, p := range plans {
		for _, f := range p.Frontends {
			t.before.noteFrontend(t, f.Key)

			if h := t.holders[f.Key]; h != nil && h.key != k {
				t.before.noteSockets(t, h.key)
			}

			for _, r := range t.waiting[f.Key] {
				t.before.noteSockets(t, r.key)
			}
		}

		t.before.noteAddresses(t, p)
	}
}

func (t *Tables) claim(c *claimant, k verdict.ServiceKey) {
	holder := t.holders[k]
	if holder == nil {
		t.holders[k] = c
		return
	}

	if c.precedes(holder) {
		t.holders[k], c = c, holder
	}

	r := append(slices.Clip(t.waiting[k]), c)
	slices.SortFunc(r, func(a, b *claimant) int {
		if a.precedes(b) {
			return -1
		}

		return 1
	})
	t.waiting[k] = r
}

func (t *Tables) release(c *claimant, k verdict.ServiceKey) {
	r := t.waiting[k]
	switch {
	case t.holders[k] != c:
		r = slices.DeleteFunc(r, func(o *claimant) bool { return o == c })
	case len(r) > 0:
		t.holders[k], r = r[0], r[1:]
	default:
		delete(t.holders, k)
	}

	if len(r) == 0 {
		delete(t.waiting, k)
	} else {
		t.waiting[k] = r
	}
}

// count increments the count of each of now and decrements that of each of old.
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
