package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// SyncAddrs sets the table of the host's addresses to exactly want. Frontends with an unspecified
// address stand for these, and always for loopback.
func (s *Sock) SyncAddrs(want []netip.Addr) error {
	keys := make(map[sockAddr]uint8, len(want))
	for _, a := range want {
		keys[sockAddr{W: words(a.WithZone(""))}] = 1
	}

	if err := syncSet(s.objs.SockAddrs, keys); err != nil {
		return fmt.Errorf("sync addresses of host sockets: %w", err)
	}

	return nil
}

// UpdateServices updates the services in changes and no others. SyncServices must be called before.
// It writes only differences: writes counts the written and deleted table entries. An invalid
// service stays unchanged and is named in the error. After any other error the next call starts
// over from the contents of the tables. A service without room is left out until other services are
// deleted, see Unwritten.
func (s *Sock) UpdateServices(changes []SockService) (writes int, err error) {
	if s.wanted == nil {
		return 0, errors.New("update services of host sockets: no services were synced yet")
	}

	groups, invalid := groupsOf(changes)
	groups = s.chooseServices(groups)

	if s.state != nil {
		writes, err = s.apply(s.state.update(groups))
	} else {
		writes, err = s.resync(s.wanted)
	}

	if isFull(err) {
		writes, err = s.replace(groups)
	}

	return writes, errors.Join(invalid, err)
}

// SyncServices sets the tables to exactly full, with the rules of UpdateServices. It adopts entries
// of an earlier load. Lookups of unchanged entries do not fail meanwhile. An invalid service counts
// as absent.
func (s *Sock) SyncServices(full []SockService) (writes int, err error) {
	groups, invalid := groupsOf(full)
	s.wanted, s.leftOut, s.used = make(map[string][]*sockGroup), make(map[string][]*sockGroup), sockSize{}
	s.chooseServices(groups)

	writes, err = s.resync(s.wanted)
	if isFull(err) {
		writes, err = s.replace(s.wanted)
	}

	return writes, errors.Join(invalid, err)
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

// GoneUDP returns, once, the UDP backends that left their last service since the last call. The
// caller must destroy sockets that frontends connected to them (link.DestroyUDP).
func (s *Sock) GoneUDP() []netip.AddrPort {
	if s.state != nil {
		s.gone = append(s.gone, s.state.udp.gone()...)
	}

	out := make([]netip.AddrPort, 0, len(s.gone))
	for _, b := range s.gone {
		out = append(out, b.addrPort())
	}

	s.gone = nil

	return out
}

// Translated reports whether a frontend connected the UDP socket with that cookie to the peer.
func (s *Sock) Translated(cookie uint64, peer netip.AddrPort) (bool, error) {
	var back sockBack

	err := s.objs.SockConnected.Lookup(cookie, &back)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("look up UDP socket %d: %w", cookie, err)
	}

	return back.addrPort() == netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()), nil
}

func (b sockBack) addrPort() netip.AddrPort { return addrPort(b.Addr.W, b.Port) }

// sockSize is a number of entries in the tables of frontends and of backends. It counts frontends
// that several services share once for each.
type sockSize struct{ fronts, backs int }

func sizeOf(groups []*sockGroup) sockSize {
	var n sockSize
	for _, g := range groups {
		n.fronts, n.backs = n.fronts+len(g.fronts), n.backs+len(g.backs)
	}

	return n
}

// chooseServices adds changed services to the wanted ones, as many as the tables have room for. The
// others are left out. It returns the changes of the wanted services; a service without groups is
// deleted. A wanted service keeps its room before those that were left out.
func (s *Sock) chooseServices(changed map[string][]*sockGroup) map[string][]*sockGroup {
	out := make(map[string][]*sockGroup, len(changed))
	kept := make(map[string]bool) // services that were wanted before

	// First, the changed services release their room, and all but the deleted ones are left out.
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

	// Then the services that are left out get room, those that were wanted before first. This includes
	// services of earlier calls, because the changes may have made room for them.
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

// replace writes the changed services when old and new entries have no room beside each other. It
// deletes the old entries first. Meanwhile connections to these services leave the host
// untranslated.
func (s *Sock) replace(changed map[string][]*sockGroup) (int, error) {
	others := maps.Clone(s.wanted)
	for key := range changed {
		delete(others, key)
	}

	n, err := s.resync(others)
	if err != nil {
		return n, err
	}

	more, err := s.apply(s.state.update(changed))

	return n + more, err
}

// resync reads the tables, and then sets them to exactly these services, which are all or some of
// the wanted ones.
func (s *Sock) resync(services map[string][]*sockGroup) (int, error) {
	if s.state != nil {
		s.gone = append(s.gone, s.state.udp.gone()...)
		s.state = nil
	}

	state, err := s.load()
	if err != nil {
		return 0, err
	}

	for _, groups := range s.wanted { // they had the sets of the former state
		for _, g := range groups {
			g.set = 0
		}
	}

	s.state = state

	return s.apply(state.adopt(services))
}

// load reads the tables.
func (s *Sock) load() (*sockState, error) {
	fronts, err := readTable[sockFrontKey, sockFront](s.objs.SockFrontends)
	if err != nil {
		return nil, fmt.Errorf("read frontends of host sockets: %w", err)
	}

	backs, err := readTable[sockBackKey, sockBack](s.objs.SockBackends)
	if err != nil {
		return nil, fmt.Errorf("read backends of host sockets: %w", err)
	}

	state := newSockState()
	state.read(fronts, backs)

	return state, nil
}

// apply writes the plan to the tables, and returns the number of entries written or deleted. After
// an error their contents are unknown, so the next call reads them.
func (s *Sock) apply(p sockPlan) (int, error) {
	err := s.write(p)
	if err != nil {
		s.state = nil
		return 0, fmt.Errorf("update services of host sockets: %w", err)
	}

	return p.size(), nil
}

// write executes the steps of the plan in their order, see sockPlan.
func (s *Sock) write(p sockPlan) error {
	if err := deleteKeys(s.objs.SockFrontends, p.delFronts); err != nil {
		return fmt.Errorf("delete frontends: %w", err)
	}

	if err := putAll(s.objs.SockBackends, p.backKeys, p.backs); err != nil {
		return fmt.Errorf("write backends: %w", err)
	}

	if err := putAll(s.objs.SockFrontends, p.frontKeys, p.fronts); err != nil {
		return fmt.Errorf("write frontends: %w", err)
	}

	if err := deleteKeys(s.objs.SockBackends, p.delBacks); err != nil {
		return fmt.Errorf("delete backends: %w", err)
	}

	return nil
}

// deleteKeys deletes the entries of a hash table that exist.
func deleteKeys[K any](m *ebpf.Map, keys []K) error {
	for len(keys) > 0 {
		n, err := m.BatchDelete(keys, nil)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			keys = keys[n+1:] // the kernel stops at a missing key
		case err != nil:
			return err
		default:
			return nil
		}
	}

	return nil
}

// putAll writes values[i] under keys[i].
func putAll[K, V any](m *ebpf.Map, keys []K, values []V) error {
	const batch = 4096
	for len(keys) > 0 {
		n := min(batch, len(keys))
		if _, err := m.BatchUpdate(keys[:n], values[:n], nil); err != nil {
			return err
		}

		keys, values = keys[n:], values[n:]
	}

	return nil
}
