package bpf

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// fakeTables are tables to which a plan is applied step by step.
type fakeTables struct {
	fronts map[sockFrontKey]sockFront
	backs  map[sockBackKey]sockBack
}

func newFakeTables() *fakeTables {
	return &fakeTables{fronts: make(map[sockFrontKey]sockFront), backs: make(map[sockBackKey]sockBack)}
}

// run applies the plan in order and calls check after every write.
func (f *fakeTables) run(p sockPlan, check func()) {
	for _, k := range p.delFronts {
		delete(f.fronts, k)
		check()
	}

	for i, k := range p.backKeys {
		f.backs[k] = p.backs[i]

		check()
	}

	for i, k := range p.frontKeys {
		f.fronts[k] = p.fronts[i]

		check()
	}

	for _, k := range p.delBacks {
		delete(f.backs, k)
		check()
	}
}

// lookup returns the backends of a frontend; ok is false if it does not exist.
func (f *fakeTables) lookup(k sockFrontKey) (backs []sockBack, complete, ok bool) {
	front, ok := f.fronts[k]
	complete = true

	for slot := range front.Count {
		b, there := f.backs[sockBackKey{Set: front.Set, Slot: slot}]

		complete = complete && there
		if there {
			backs = append(backs, b)
		}
	}

	return backs, complete, ok
}

func mustGroups(t *testing.T, services ...SockService) map[string][]*sockGroup {
	t.Helper()

	groups, err := groupsOf(services)
	if err != nil {
		t.Fatal(err)
	}

	return groups
}

func onePort(key string, proto uint8, ends []netip.AddrPort, backends ...string) SockService {
	return SockService{Key: key, Ports: []SockPort{{Frontends: ends, Proto: proto, Backends: backs(backends...)}}}
}

// TestSockState_writes counts what a change costs.
func TestSockState_writes(t *testing.T) {
	ends := fronts("10.96.0.1:80", "0.0.0.0:30080", "198.51.100.1:80")
	a, b, c, d := "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"

	s := newSockState()
	for _, step := range []struct {
		what   string
		change SockService
		want   int
	}{
		{"new", onePort("web", protoTCP, ends, a, b, c), 3 + 3},
		{"again", onePort("web", protoTCP, ends, c, b, a), 0},
		{"one is replaced", onePort("web", protoTCP, ends, a, b, d), 1},
		{"one more", onePort("web", protoTCP, ends, a, b, c, d), 1 + 3},
		{"the last slot's goes", onePort("web", protoTCP, ends, a, b, d), 3 + 1},
		{"the first slot's goes", onePort("web", protoTCP, ends, b, d), 1 + 3 + 1},
		{"a frontend goes", onePort("web", protoTCP, ends[:2], b, d), 1},
		{"a frontend comes", onePort("web", protoTCP, ends, b, d), 1},
		{"another service", onePort("dns", protoUDP, fronts("10.96.0.2:53"), a), 2},
		{"the same port of another protocol", onePort("udp", protoUDP, ends, a), 1 + 3},
		{"no backend", onePort("web", protoTCP, ends), 3 + 2},
		{"backends again", onePort("web", protoTCP, ends, a), 1 + 3},
		{"deleted", SockService{Key: "web"}, 3 + 1},
		{"deleted again", SockService{Key: "web"}, 0},
	} {
		p := s.update(mustGroups(t, step.change))
		if got := p.size(); got != step.want {
			t.Errorf("%s: %d writes, want %d: %+v", step.what, got, step.want, p)
		}
	}
}

func TestSockState_conflict(t *testing.T) {
	s, f := newSockState(), newFakeTables()
	end := fronts("198.51.100.1:80")
	want := func(when, backend string) {
		t.Helper()

		key := sockFrontKey{Addr: sockAddr{W: words(end[0].Addr())}, Port: bePort(80), Proto: protoTCP}

		got, _, ok := f.lookup(key)
		if backend == "" {
			if ok {
				t.Errorf("%s: %v", when, got)
			}

			return
		}

		if !ok || len(got) != 1 || got[0].addrPort().Addr().String() != backend {
			t.Errorf("%s: %v, want %s", when, got, backend)
		}
	}
	run := func(changes ...SockService) { f.run(s.update(mustGroups(t, changes...)), func() {}) }
	run(onePort("b", protoTCP, end, "192.0.2.2"))
	want("alone", "192.0.2.2")
	run(onePort("a", protoTCP, end, "192.0.2.1"))
	want("a smaller key", "192.0.2.1")
	run(onePort("c", protoTCP, end, "192.0.2.3"))
	want("a larger key", "192.0.2.1")
	run(SockService{Key: "a"})
	want("it goes", "192.0.2.2")
	run(SockService{Key: "b"}, SockService{Key: "c"})
	want("all go", "")

	if len(f.fronts)+len(f.backs) != 0 {
		t.Errorf("left: %v, %v", f.fronts, f.backs)
	}
}

func TestGroupsOf_invalid(t *testing.T) {
	ok := fronts("10.96.0.1:80")
	for _, tt := range []struct {
		name string
		port SockPort
	}{
		{"protocol", SockPort{Frontends: ok, Proto: 132}},
		{"affinity", SockPort{Frontends: ok, Proto: protoTCP, Affinity: -time.Second}},
		{"frontend", SockPort{Frontends: []netip.AddrPort{{}}, Proto: protoTCP}},
		{"frontend's port", SockPort{Frontends: fronts("10.96.0.1:0"), Proto: protoTCP}},
		{"backend", SockPort{Frontends: ok, Proto: protoTCP, Backends: []netip.AddrPort{{}}}},
		{"unspecified backend", SockPort{Frontends: ok, Proto: protoTCP, Backends: fronts("0.0.0.0:80")}},
	} {
		groups, err := groupsOf([]SockService{{Key: "bad", Ports: []SockPort{tt.port}}, onePort("good", protoTCP, ok, "192.0.2.1")})
		if err == nil || len(groups) != 1 || len(groups["good"]) != 1 {
			t.Errorf("%s: %v, %v", tt.name, groups, err)
		}
	}
}

// world is a random set of services that share some frontends.
type world struct {
	*rand.Rand
	services map[string]SockService
}

func (w *world) change() SockService {
	s := SockService{Key: fmt.Sprintf("s%d", w.IntN(5))}
	for range w.IntN(4) {
		p := SockPort{Proto: []uint8{protoTCP, protoUDP}[w.IntN(2)], Affinity: time.Duration(w.IntN(2)) * time.Hour}
		for range w.IntN(4) {
			p.Frontends = append(p.Frontends, fronts(fmt.Sprintf("10.96.0.%d:80", w.IntN(6)), fmt.Sprintf("[fd00::%d]:80", w.IntN(3)))[w.IntN(2)])
		}

		for range w.IntN(6) {
			p.Backends = append(p.Backends, backs(fmt.Sprintf("192.0.2.%d", w.IntN(8)), fmt.Sprintf("2001:db8::%d", w.IntN(4)))[w.IntN(2)])
		}

		s.Ports = append(s.Ports, p)
	}

	w.services[s.Key] = s

	return s
}

// wanted returns what each frontend must lead to, worked out plainly.
func (w *world) wanted(t *testing.T) map[sockFrontKey][]sockBack {
	t.Helper()

	want := make(map[sockFrontKey][]sockBack)
	owner := make(map[sockFrontKey]*sockGroup)

	for _, s := range w.services {
		for _, g := range mustGroups(t, s)[s.Key] {
			for _, f := range g.fronts {
				if owner[f] == nil || compareGroups(g, owner[f]) < 0 {
					owner[f], want[f] = g, g.backs
				}
			}
		}
	}

	return want
}

// TestSockState_randomChanges: after every single write each frontend leads only to
// backends that it had before the change or has after it; after the change exactly to
// those, and nothing else is in the tables. Now and then the agent starts over.
func TestSockState_randomChanges(t *testing.T) {
	seed := randomtest.Seed(t)
	w := &world{rand.New(rand.NewPCG(seed, 0)), make(map[string]SockService)}
	s, f := newSockState(), newFakeTables()
	before := w.wanted(t)

	for step := range 3000 {
		var changes []SockService
		for range 1 + w.IntN(3) {
			changes = append(changes, w.change())
		}

		after := w.wanted(t)

		var p sockPlan

		if w.IntN(10) == 0 {
			s = stateOf(f)
			all := slices.Collect(func(yield func(SockService) bool) {
				for _, svc := range w.services {
					if !yield(svc) {
						return
					}
				}
			})
			p = s.adopt(mustGroups(t, all...))
		} else {
			last := make(map[string]SockService)
			for _, c := range changes {
				last[c.Key] = c
			}

			changes = changes[:0]
			for _, c := range last {
				changes = append(changes, c)
			}

			p = s.update(mustGroups(t, changes...))
		}

		f.run(p, func() { checkLookups(t, f, before, after) })
		checkExact(t, f, after)

		if again := s.update(mustGroups(t, changes...)); again.size() != 0 {
			t.Errorf("the same again: %+v", again)
		}

		if t.Failed() {
			t.Fatalf("at step %d: %+v", step, p)
		}

		before = after
	}
}

func stateOf(f *fakeTables) *sockState {
	s := newSockState()
	s.read(f.fronts, f.backs)

	return s
}

func checkLookups(t *testing.T, f *fakeTables, before, after map[sockFrontKey][]sockBack) {
	t.Helper()

	for k := range f.fronts {
		got, _, _ := f.lookup(k)
		for _, b := range got {
			if !slices.Contains(before[k], b) && !slices.Contains(after[k], b) {
				t.Errorf("%v leads to %v, not its own", k, b.addrPort())
			}
		}
	}
}

func checkExact(t *testing.T, f *fakeTables, want map[sockFrontKey][]sockBack) {
	t.Helper()

	sets := make(map[uint32]int)

	for k, backends := range want {
		got, complete, ok := f.lookup(k)
		slices.SortFunc(got, compareBacks)

		if !ok || !complete || !slices.Equal(got, backends) {
			t.Errorf("%v leads to %v (there %t, complete %t), want %v", k, got, ok, complete, backends)
		}

		sets[f.fronts[k].Set] = len(got)
	}

	entries := 0
	for _, n := range sets {
		entries += n
	}

	if len(f.fronts) != len(want) || len(f.backs) != entries {
		t.Errorf("%d frontends and %d backends, want %d and %d", len(f.fronts), len(f.backs), len(want), entries)
	}
}
