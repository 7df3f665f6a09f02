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
	vips      map[netip.Addr]int                 // number of plans that have the address
	udp       map[netip.AddrPort]int             // number of plans that have the endpoint
	before    previousState                      // at the last call of Changes
}

// claimant is an object with a plan.
type claimant struct {
	key  Key
	plan *Plan
}

// precedes reports whether c wins a conflict with other.
func (c *claimant) precedes(other *claimant) bool {
	return c.owner().Precedes(other.owner())
}

// owner returns the object as the model's owner of frontends.
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
// afterwards. It returns the number of entries of the larger plan, the former one or p, and 0 if they
// are equal.
func (t *Tables) Set(k Key, p *Plan) (entries int) {
	old := t.claimants[k]
	switch {
	case old == nil && p == nil || old != nil && p != nil && old.plan.equal(p):
		return 0
	case old == nil:
		entries = p.Entries()
	default:
		entries = max(old.plan.Entries(), p.Entries())
	}

	if old != nil && p != nil && !old.plan.Created.Equal(p.Created) {
		t.replace(k, old, nil) // recreated under the same name: it queues up again
		old = nil
	}

	t.replace(k, old, p)

	return entries
}

// Preceding returns the frontends of the plan of k that other objects hold, by these objects.
func (t *Tables) Preceding(k Key) map[Key][]verdict.ServiceKey {
	c := t.claimants[k]
	if c == nil {
		return nil
	}

	held := map[Key][]verdict.ServiceKey{}

	for _, f := range c.plan.Frontends {
		if h := t.holders[f.Key]; h != c {
			held[h.key] = append(held[h.key], f.Key)
		}
	}

	return held
}

// Len returns the number of objects that have a plan.
func (t *Tables) Len() int { return len(t.claimants) }

// Keys returns the keys of all objects that have a plan, in any order.
func (t *Tables) Keys() []Key { return slices.Collect(maps.Keys(t.claimants)) }

// replace changes the plan of k. c is its present claimant, nil for a new one. With a nil p,
// replace deletes the claimant. First it notes the previous state of all entries that may change.
func (t *Tables) replace(k Key, c *claimant, p *Plan) {
	var old, now Plan // without a plan: empty

	if c == nil {
		c = &claimant{key: k}
	} else {
		old = *c.plan
	}

	if p != nil {
		now = *p
	}

	t.notePrevious(k, old, now)

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

// notePrevious notes the previous state of all entries that plans of k mention, and of the other
// objects that hold their frontends or wait for them.
func (t *Tables) notePrevious(k Key, plans ...Plan) {
	t.before.noteSockets(t, k)

	for _, p := range plans {
		for _, f := range p.Frontends {
			t.before.noteFrontend(t, f.Key)

			if h := t.holders[f.Key]; h != nil && h.key != k {
				t.before.noteSockets(t, h.key)
			}

			for _, w := range t.waiting[f.Key] {
				t.before.noteSockets(t, w.key)
			}
		}

		t.before.noteAddresses(t, p)
	}
}

// claim makes c the holder of a frontend, or one of those that wait for it.
func (t *Tables) claim(c *claimant, k verdict.ServiceKey) {
	holder := t.holders[k]
	if holder == nil {
		t.holders[k] = c
		return
	}

	loser := c
	if c.precedes(holder) {
		t.holders[k], loser = c, holder
	}

	waiting := append(slices.Clip(t.waiting[k]), loser)
	slices.SortFunc(waiting, func(a, b *claimant) int {
		if a.precedes(b) {
			return -1
		}

		return 1
	})
	t.waiting[k] = waiting
}

// release ends the claim of c to a frontend. If c holds the frontend, the next claimant gets it.
func (t *Tables) release(c *claimant, k verdict.ServiceKey) {
	waiting := t.waiting[k]

	switch {
	case t.holders[k] != c:
		waiting = slices.DeleteFunc(waiting, func(w *claimant) bool { return w == c })
	case len(waiting) > 0:
		t.holders[k], waiting = waiting[0], waiting[1:]
	default:
		delete(t.holders, k)
	}

	if len(waiting) == 0 {
		delete(t.waiting, k)
	} else {
		t.waiting[k] = waiting
	}
}

// count increments the count of each element of now, and decrements that of each element of old.
// counts has no zeros.
func count[K comparable](counts map[K]int, old, now []K) {
	for _, k := range now {
		counts[k]++
	}

	for _, k := range old {
		counts[k]--
		if counts[k] == 0 {
			delete(counts, k)
		}
	}
}
