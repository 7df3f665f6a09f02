package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// sockNotLoopback is FRONT_NOT_LOOPBACK of sock.h.
const sockNotLoopback = 1 << 31

// sockGroup is the set of backends shared by the frontends of one family of one service port.
type sockGroup struct {
	service  string
	index    int
	proto    uint8
	fronts   []sockFrontKey // sorted
	backs    []sockBack     // sorted
	affinity uint32         // also has sockNotLoopback
	set      uint32         // 0: none, while there is no backend or no own frontend
}

// sockPlan is a change of the tables, in order of execution. A lookup during the change finds old
// or new backends, never those of another service.
type sockPlan struct {
	delFronts []sockFrontKey // frontends without an owner
	backKeys  []sockBackKey
	backs     []sockBack // written to backKeys
	frontKeys []sockFrontKey
	fronts    []sockFront // written to frontKeys
	delBacks  []sockBackKey
}

func (p *sockPlan) size() int {
	return len(p.delFronts) + len(p.backKeys) + len(p.frontKeys) + len(p.delBacks)
}

// sockState is the content of the tables and its reasons. It does no I/O. The caller must apply
// each plan to the tables, or start over with a state read from them.
type sockState struct {
	fronts map[sockFrontKey]sockFront
	sets   map[uint32][]sockBack
	users  map[uint32]int // number of frontends in fronts, by set

	services map[string][]*sockGroup
	claims   map[sockFrontKey][]*sockGroup // sorted; the first one is the owner
	owners   map[uint32]*sockGroup
	next     uint32

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

// sockGroups returns the groups of a service. Addresses may be IPv4-mapped; zones are ignored.
func sockGroups(s SockService) ([]*sockGroup, error) {
	var groups []*sockGroup

	for i, p := range s.Ports {
		if p.Proto != protoTCP && p.Proto != protoUDP {
			return nil, fmt.Errorf("protocol %d is neither TCP nor UDP", p.Proto)
		}

		if p.Affinity < 0 {
			return nil, fmt.Errorf("affinity %v is negative", p.Affinity)
		}

		families := [2]sockGroup{}
		for _, f := range p.Frontends {
			g, b, err := familyOf(&families, f)
			if err != nil {
				return nil, fmt.Errorf("frontend %v: %w", f, err)
			}

			g.fronts = append(g.fronts, sockFrontKey{Addr: b.Addr, Port: b.Port, Proto: p.Proto})
		}

		for _, a := range p.Backends {
			g, b, err := familyOf(&families, a)
			if err == nil && a.Addr().IsUnspecified() {
				err = errors.New("address is unspecified")
			}

			if err != nil {
				return nil, fmt.Errorf("backend %v: %w", a, err)
			}

			g.backs = append(g.backs, b)
		}

		for f := range families {
			g := &families[f]
			if len(g.fronts) == 0 {
				continue
			}

			g.service, g.index, g.proto = s.Key, 2*i+f, p.Proto
			g.affinity = uint32(min((p.Affinity+time.Second-1)/time.Second, sockNotLoopback-1))

			if p.NotLoopback {
				g.affinity |= sockNotLoopback
			}

			slices.SortFunc(g.fronts, compareFronts)
			g.fronts = slices.Compact(g.fronts)
			slices.SortFunc(g.backs, compareBacks)
			g.backs = slices.Compact(g.backs)
			groups = append(groups, g)
		}
	}

	return groups, nil
}

func familyOf(families *[2]sockGroup, a netip.AddrPort) (*sockGroup, sockBack, error) {
	addr := a.Addr().Unmap().WithZone("")
	if !addr.IsValid() || a.Port() == 0 {
		return nil, sockBack{}, errors.New("no address, or no port")
	}

	g := &families[0]
	if addr.Is6() {
		g = &families[1]
	}

	return g, sockBack{Addr: sockAddr{W: words(addr)}, Port: bePort(a.Port())}, nil
}

// update plans the change from the previous services to groups, by service key.
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

// adopt plans the change from tables read from the kernel, without known services, to groups.
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

func (s *sockState) claim(g *sockGroup, affected map[sockFrontKey]bool) {
	for _, f := range g.fronts {
		at, _ := slices.BinarySearchFunc(s.claims[f], g, compareGroups)
		s.claims[f] = slices.Insert(s.claims[f], at, g)
		affected[f] = true
	}
}

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

	touched := make(map[*sockGroup]bool)

	for _, f := range slices.SortedFunc(maps.Keys(affected), compareFronts) {
		had, exists := s.fronts[f]
		if owner := s.owners[had.Set]; exists && owner != nil {
			touched[owner] = true
		}

		for _, g := range s.claims[f] {
			touched[g] = true
		}

		if exists && len(s.claims[f]) == 0 {
			s.dropFront(f)
			p.delFronts = append(p.delFronts, f)
		}
	}

	ordered := slices.SortedFunc(maps.Keys(touched), compareGroups)

	won := make(map[*sockGroup][]sockFrontKey, len(ordered))
	for _, g := range ordered {
		won[g] = s.won(g)
		if id := s.assign(g, won[g]); id != 0 {
			released = append(released, id)
		}
	}

	for _, g := range ordered {
		if g.set != 0 {
			s.fill(&p, g)
		}
	}

	for _, g := range ordered {
		for _, f := range won[g] {
			s.setFront(&p, f, sockFront{Set: g.set, Count: uint32(len(g.backs)), Affinity: g.affinity})
		}
	}

	s.deleteReleased(&p, released)

	return p
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

// assign allocates a set to the group if it needs one. It returns the released set, if any.
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

	// An existing set is changed in place, unless another group's frontend would briefly lead to this
	// group's backends.
	counts := make(map[uint32]int)

	for _, f := range won {
		if have, ok := s.fronts[f]; ok && have.Set != 0 {
			counts[have.Set]++
		}
	}

	for _, id := range slices.Sorted(maps.Keys(counts)) {
		if s.owners[id] == nil && s.users[id] == counts[id] {
			g.set = id
			break
		}
	}

	if g.set == 0 {
		g.set = s.freeID()
	}

	s.owners[g.set] = g

	return 0
}

func (s *sockState) freeID() uint32 {
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

func compareFronts(a, b sockFrontKey) int {
	return cmp.Or(slices.Compare(a.Addr.W[:], b.Addr.W[:]), cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.Proto, b.Proto))
}

func compareBacks(a, b sockBack) int {
	return cmp.Or(slices.Compare(a.Addr.W[:], b.Addr.W[:]), cmp.Compare(a.Port, b.Port))
}

func compareGroups(a, b *sockGroup) int {
	return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.index, b.index))
}
