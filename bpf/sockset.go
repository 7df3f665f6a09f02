package bpf

import "slices"

// read sets the state from the contents of the tables.
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

// udpBackends counts the slots of UDP sets per backend.
type udpBackends struct {
	sets    map[uint32]bool
	count   map[sockBack]int
	touched map[sockBack]bool // left a slot since the last call of gone
}

// use records that a set belongs to proto and holds slots, unless already recorded.
func (u *udpBackends) use(set uint32, proto uint8, slots []sockBack) {
	if proto == protoUDP && !u.sets[set] {
		u.sets[set] = true
		u.replace(set, nil, slots)
	}
}

// replace records that the slots of a set have changed. Other sets than those of UDP are ignored.
func (u *udpBackends) replace(set uint32, old, now []sockBack) {
	if !u.sets[set] {
		return
	}

	for _, b := range old {
		if u.count[b]--; u.count[b] == 0 {
			delete(u.count, b)
		}

		u.touched[b] = true
	}

	for _, b := range now {
		u.count[b]++
	}
}

// gone returns the backends that no slot has any more, sorted.
func (u *udpBackends) gone() []sockBack {
	var gone []sockBack

	for b := range u.touched {
		if u.count[b] == 0 && b != (sockBack{}) {
			gone = append(gone, b)
		}
	}

	clear(u.touched)
	slices.SortFunc(gone, compareBacks)

	return gone
}
