package bpf

import (
	"maps"
	"slices"
)

// sockPlan is a change of the tables sock_frontends and sock_backends, in order of execution. A
// lookup during the change finds old or new backends, never those of another service: a set has its
// backends before a frontend leads to it, and keeps them until no frontend leads to it.
type sockPlan struct {
	delFronts []sockFrontKey // frontends without an owner
	backKeys  []sockBackKey
	backs     []sockBack // written to backKeys
	frontKeys []sockFrontKey
	fronts    []sockFront // written to frontKeys
	delBacks  []sockBackKey
}

// size returns the number of table entries that the plan writes or deletes.
func (p *sockPlan) size() int {
	return len(p.delFronts) + len(p.backKeys) + len(p.frontKeys) + len(p.delBacks)
}

// sockState plans changes of the tables. It has a copy of their contents, and the services from
// which they follow. It does no I/O. The caller must apply each plan to the tables, or start over
// with a state read from them.
//
// In the tables, a frontend leads to a numbered set of backends, and several frontends may lead to
// the same set. Each group has one set. If several groups claim a frontend, the first in the order
// of compareGroups owns it, and the frontend leads to the set of this group. A frontend whose owner
// has no backends leads to set 0, which means that it refuses connections.
type sockState struct {
	// The contents of the tables, after the plans so far.
	fronts map[sockFrontKey]sockFront
	sets   map[uint32][]sockBack // by slot; the zero value is an empty slot
	users  map[uint32]int        // number of frontends in fronts, by set

	// The wanted services.
	services map[string][]*sockGroup
	claims   map[sockFrontKey][]*sockGroup // sorted; the first one is the owner
	owners   map[uint32]*sockGroup         // by set
	next     uint32                        // where the search for an unused set begins

	udp udpBackends
}

func newSockState() *sockState {
	return &sockState{
		fronts:   make(map[sockFrontKey]sockFront),
		sets:     make(map[uint32][]sockBack),
		users:    make(map[uint32]int),
		services: make(map[string][]*sockGroup),
		claims:   make(map[sockFrontKey][]*sockGroup),
		owners:   make(map[uint32]*sockGroup),
		next:     1,
		udp: udpBackends{
			sets:    make(map[uint32]bool),
			count:   make(map[sockBack]int),
			touched: make(map[sockBack]bool),
		},
	}
}

// read sets the state from the contents of the tables, without services.
func (s *sockState) read(fronts map[sockFrontKey]sockFront, backs map[sockBackKey]sockBack) {
	for k, b := range backs {
		slots := s.sets[k.Set]
		if missing := int(k.Slot) + 1 - len(slots); missing > 0 {
			slots = append(slots, make([]sockBack, missing)...)
		}

		slots[k.Slot] = b
		s.sets[k.Set] = slots
		s.next = max(s.next, k.Set+1)
	}

	for k, f := range fronts {
		s.putFront(k, f)

		if f.Set != 0 {
			s.udp.use(f.Set, k.Proto, s.sets[f.Set])
		}
	}
}

// update plans the change of some services, by key, to these groups. A service without groups is
// deleted, and services that are not in the map stay.
func (s *sockState) update(groups map[string][]*sockGroup) sockPlan {
	affected := make(map[sockFrontKey]bool)

	var released []uint32

	for key, now := range groups {
		for _, g := range s.services[key] {
			s.unclaim(g, affected)

			if g.set != 0 {
				delete(s.owners, g.set)
				released = append(released, g.set)
			}
		}

		delete(s.services, key)

		for _, g := range now {
			s.claim(g, affected)
			s.services[key] = append(s.services[key], g)
		}
	}

	return s.plan(affected, released)
}

// adopt plans the change from tables that read has read to exactly these groups, by service key.
func (s *sockState) adopt(groups map[string][]*sockGroup) sockPlan {
	affected := make(map[sockFrontKey]bool)

	for key, now := range groups {
		for _, g := range now {
			s.claim(g, affected)
			s.services[key] = append(s.services[key], g)
		}
	}

	for f := range s.fronts {
		affected[f] = true
	}

	return s.plan(affected, slices.Collect(maps.Keys(s.sets)))
}

// claim adds the group to the claims of its frontends, which are then affected.
func (s *sockState) claim(g *sockGroup, affected map[sockFrontKey]bool) {
	for _, f := range g.fronts {
		at, _ := slices.BinarySearchFunc(s.claims[f], g, compareGroups)
		s.claims[f] = slices.Insert(s.claims[f], at, g)
		affected[f] = true
	}
}

// unclaim is the inverse of claim.
func (s *sockState) unclaim(g *sockGroup, affected map[sockFrontKey]bool) {
	for _, f := range g.fronts {
		s.claims[f] = slices.DeleteFunc(s.claims[f], func(c *sockGroup) bool { return c == g })
		if len(s.claims[f]) == 0 {
			delete(s.claims, f)
		}

		affected[f] = true
	}
}

// plan updates the affected frontends, and all groups that own or owned them, to match the claims.
// released are sets without an owner.
func (s *sockState) plan(affected map[sockFrontKey]bool, released []uint32) sockPlan {
	var p sockPlan

	groups := s.groupsAt(affected)
	p.delFronts = s.dropUnclaimed(affected)

	won := make(map[*sockGroup][]sockFrontKey, len(groups))
	for _, g := range groups {
		won[g] = s.won(g)
		if id := s.assign(g, won[g]); id != 0 {
			released = append(released, id)
		}
	}

	for _, g := range groups {
		if g.set != 0 {
			s.fill(&p, g)
		}
	}

	for _, g := range groups {
		for _, f := range won[g] {
			s.setFront(&p, f, sockFront{Set: g.set, Count: uint32(len(g.backs)), Affinity: g.affinity})
		}
	}

	s.deleteReleased(&p, released)

	return p
}

// groupsAt returns the groups that claim one of the frontends, or to whose set one leads, sorted.
func (s *sockState) groupsAt(fronts map[sockFrontKey]bool) []*sockGroup {
	groups := make(map[*sockGroup]bool)

	for f := range fronts {
		have, exists := s.fronts[f]
		if owner := s.owners[have.Set]; exists && owner != nil {
			groups[owner] = true
		}

		for _, g := range s.claims[f] {
			groups[g] = true
		}
	}

	return slices.SortedFunc(maps.Keys(groups), compareGroups)
}

// dropUnclaimed removes the frontends without a claim from the state. It returns them, sorted.
func (s *sockState) dropUnclaimed(fronts map[sockFrontKey]bool) []sockFrontKey {
	var dropped []sockFrontKey

	for _, f := range slices.SortedFunc(maps.Keys(fronts), compareFronts) {
		if _, exists := s.fronts[f]; exists && len(s.claims[f]) == 0 {
			s.dropFront(f)
			dropped = append(dropped, f)
		}
	}

	return dropped
}

// won returns the frontends that the group owns.
func (s *sockState) won(g *sockGroup) []sockFrontKey {
	var won []sockFrontKey

	for _, f := range g.fronts {
		if s.claims[f][0] == g {
			won = append(won, f)
		}
	}

	return won
}

// assign allocates a set to the group, which owns the frontends won. A group without frontends or
// backends needs none. It returns the set that the group no longer needs, or 0.
func (s *sockState) assign(g *sockGroup, won []sockFrontKey) (released uint32) {
	if len(won) == 0 || len(g.backs) == 0 {
		released, g.set = g.set, 0
		if released != 0 {
			delete(s.owners, released)
		}

		return released
	}

	if g.set != 0 {
		return 0
	}

	if g.set = s.reusableSet(won); g.set == 0 {
		g.set = s.unusedSet()
	}

	s.owners[g.set] = g

	return 0
}

// reusableSet returns a set without an owner to which only these frontends lead, or 0. Such a set
// can be changed in place. With any other set, another group's frontend would briefly lead to the
// new backends.
func (s *sockState) reusableSet(fronts []sockFrontKey) uint32 {
	users := make(map[uint32]int) // number of these frontends, by set

	for _, f := range fronts {
		if have, ok := s.fronts[f]; ok && have.Set != 0 {
			users[have.Set]++
		}
	}

	for _, id := range slices.Sorted(maps.Keys(users)) {
		if s.owners[id] == nil && s.users[id] == users[id] {
			return id
		}
	}

	return 0
}

// unusedSet returns the number of a set that is not in the tables and has no owner.
func (s *sockState) unusedSet() uint32 {
	for {
		id := s.next

		s.next++
		if s.next == 0 {
			s.next = 1
		}

		if _, used := s.sets[id]; !used && s.owners[id] == nil && s.users[id] == 0 {
			return id
		}
	}
}

// fill plans the writes that store the group's backends in its set.
func (s *sockState) fill(p *sockPlan, g *sockGroup) {
	old := s.sets[g.set]
	now := arrange(old, g.backs)
	s.udp.use(g.set, g.proto, old)

	for slot, b := range now {
		if slot < len(old) && old[slot] == b {
			continue
		}

		p.backKeys = append(p.backKeys, sockBackKey{Set: g.set, Slot: uint32(slot)})
		p.backs = append(p.backs, b)
	}

	p.delBacks = appendSlots(p.delBacks, g.set, len(now), old)
	s.udp.replace(g.set, old, now)
	s.sets[g.set] = now
}

// arrange returns want in an order that keeps as many entries as possible at their position in old.
// So few slots are written, and the programs find most chosen backends in their former slot.
func arrange(old, want []sockBack) []sockBack {
	out := make([]sockBack, len(want))
	missing := make(map[sockBack]bool, len(want))

	for _, b := range want {
		missing[b] = true
	}

	for i, b := range old[:min(len(old), len(want))] {
		if missing[b] {
			out[i] = b
			delete(missing, b)
		}
	}

	free := 0

	for _, b := range want {
		if !missing[b] {
			continue
		}

		for out[free] != (sockBack{}) {
			free++
		}

		out[free] = b
	}

	return out
}

// appendSlots appends the keys of the non-empty slots, starting at first.
func appendSlots(keys []sockBackKey, set uint32, first int, slots []sockBack) []sockBackKey {
	for slot := first; slot < len(slots); slot++ {
		if slots[slot] != (sockBack{}) { // a crash may have left gaps
			keys = append(keys, sockBackKey{Set: set, Slot: uint32(slot)})
		}
	}

	return keys
}

// setFront plans the write, if needed, that makes a frontend lead to a set.
func (s *sockState) setFront(p *sockPlan, f sockFrontKey, to sockFront) {
	have, exists := s.fronts[f]
	if exists && have == to {
		return
	}

	if exists {
		s.dropFront(f)
	}

	s.putFront(f, to)
	p.frontKeys = append(p.frontKeys, f)
	p.fronts = append(p.fronts, to)
}

// deleteReleased plans the deletion of released sets without an owner.
func (s *sockState) deleteReleased(p *sockPlan, released []uint32) {
	slices.Sort(released)

	for _, id := range slices.Compact(released) {
		if s.owners[id] != nil {
			continue
		}

		p.delBacks = appendSlots(p.delBacks, id, 0, s.sets[id])
		s.udp.replace(id, s.sets[id], nil)
		delete(s.udp.sets, id)
		delete(s.sets, id)
	}
}

// putFront adds a frontend to the state.
func (s *sockState) putFront(f sockFrontKey, to sockFront) {
	s.fronts[f] = to
	s.users[to.Set]++
}

// dropFront removes a frontend from the state.
func (s *sockState) dropFront(f sockFrontKey) {
	set := s.fronts[f].Set
	delete(s.fronts, f)

	if s.users[set]--; s.users[set] == 0 {
		delete(s.users, set)
	}
}
