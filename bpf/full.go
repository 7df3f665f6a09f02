package bpf

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sizes holds capacities of tables by name, in place of those in the programs. Tests use it,
// because filling the real tables takes seconds.
type Sizes map[string]uint32

func (s Sizes) apply(spec *ebpf.CollectionSpec) {
	for name, size := range s {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = size
		}
	}
}

// isFull reports whether a write failed because the table has no room for a new entry.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) }

// overflow holds the entries that a full table has no room for.
type overflow[K comparable, V any] map[K]V

// add records the entries of want whose keys had no room.
func (o overflow[K, V]) add(keys []K, want map[K]V) {
	for _, k := range keys {
		o[k] = want[k]
	}
}

// forget removes the keys.
func (o overflow[K, V]) forget(keys ...K) {
	for _, k := range keys {
		delete(o, k)
	}
}

// writeOverflow writes entries while the table has room for them.
func writeOverflow[K, V comparable](o overflow[K, V], m *ebpf.Map) (tableWrites[K], error) {
	var done tableWrites[K]

	for k, v := range o {
		err := m.Put(k, v)
		if isFull(err) {
			return done, nil
		}

		if err != nil {
			return done, err
		}

		delete(o, k)

		done.written++
		done.added = append(done.added, k)
	}

	return done, nil
}

// Unwritten returns the number of entries that had no room, by table, also of tables that have
// room. A full table keeps the wanted entries that it has. Others are written as soon as there is
// room.
func (g *Gateway) Unwritten() map[string]int {
	return map[string]int{"host_addrs": g.unwrittenAddrs, "services": len(g.unwritten)}
}

// Unwritten is like Gateway.Unwritten. A service without room for all its frontends and backends
// has none: the sockets' connections to it leave the host untranslated.
func (s *Sock) Unwritten() map[string]int {
	out := map[string]int{sockMapSockFrontends: 0, sockMapSockBackends: 0}

	for _, groups := range s.leftOut {
		n := sizeOf(groups)
		out[sockMapSockFrontends] += n.fronts
		out[sockMapSockBackends] += n.backs
	}

	return out
}

// Unwritten is like Gateway.Unwritten.
func (l *Lookup) Unwritten() map[string]int {
	return map[string]int{lookupMapLookupTargets: l.unwritten}
}

// sockSize is a number of entries. It counts frontends that several services share once for each.
type sockSize struct{ fronts, backs int }

func sizeOf(groups []*sockGroup) sockSize {
	var n sockSize
	for _, g := range groups {
		n.fronts, n.backs = n.fronts+len(g.fronts), n.backs+len(g.backs)
	}

	return n
}

// chooseServices takes changed services into the wanted ones, as many as the tables have room for.
// The others are left out. It returns the changes of the wanted services; a service without groups
// is deleted. A wanted service keeps its room before those that were left out.
func (s *Sock) chooseServices(changed map[string][]*sockGroup) map[string][]*sockGroup {
	out := make(map[string][]*sockGroup, len(changed))
	kept := make(map[string]bool)

	for key, groups := range changed {
		if old, ok := s.wanted[key]; ok {
			n := sizeOf(old)
			s.used.fronts, s.used.backs = s.used.fronts-n.fronts, s.used.backs-n.backs
			delete(s.wanted, key)
			out[key], kept[key] = nil, true
		}

		delete(s.leftOut, key)

		if len(groups) > 0 {
			s.leftOut[key] = groups
		}
	}

	order := slices.SortedFunc(maps.Keys(s.leftOut), func(a, b string) int {
		if kept[a] != kept[b] {
			if kept[a] {
				return -1
			}

			return 1
		}

		return cmp.Compare(a, b)
	})
	for _, key := range order {
		n := sizeOf(s.leftOut[key])
		if n.fronts+s.used.fronts > int(s.objs.SockFrontends.MaxEntries()) ||
			n.backs+s.used.backs > int(s.objs.SockBackends.MaxEntries()) {
			continue
		}

		s.used.fronts, s.used.backs = s.used.fronts+n.fronts, s.used.backs+n.backs
		s.wanted[key], out[key] = s.leftOut[key], s.leftOut[key]
		delete(s.leftOut, key)
	}

	return out
}
