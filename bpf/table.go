package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
)

const (
	protoTCP = 6
	protoUDP = 17
)

// SocketKey is a local port that a host socket uses.
type SocketKey struct {
	Proto uint8 // 6 or 17
	Port  uint16
}

// SyncHostSockets sets the local ports for which the programs look up the owning socket. Bits of
// ports outside the SNAT range have no effect. The change is one write. With a Gate, Gate.Sync is
// called instead.
func (g *Gateway) SyncHostSockets(want []SocketKey) error {
	bits, err := portBits(want)
	if err == nil {
		err = g.objs.HostSockets.Put(uint32(0), &bits)
	}

	if err != nil {
		return fmt.Errorf("sync host sockets: %w", err)
	}

	return nil
}

// portBits returns the bitmaps in which the ports of the sockets are set.
func portBits(sockets []SocketKey) (gatewayPortBits, error) {
	var bits gatewayPortBits

	for _, s := range sockets {
		switch s.Proto {
		case protoTCP:
			setBit(bits.Tcp[:], s.Port)
		case protoUDP:
			setBit(bits.Udp[:], s.Port)
		default:
			return bits, fmt.Errorf("protocol %d is neither TCP nor UDP", s.Proto)
		}
	}

	return bits, nil
}

// tableWrites is the result of writing entries to a table.
type tableWrites[K comparable] struct {
	added   []K // new keys
	written int // number of entries, added or changed
	full    []K // new keys that the table has no room for
}

// putEntries writes the entries that m lacks or has with another value. New entries that m has no
// room for are skipped. The result is valid after an error, too.
func putEntries[K, V comparable](m *ebpf.Map, want map[K]V) (tableWrites[K], error) {
	var done tableWrites[K]

	for k, v := range want {
		var have V

		err := m.Lookup(k, &have)
		if err == nil && have == v {
			continue
		}

		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return done, err
		}

		isNew := err != nil

		err = m.Put(k, v)
		if isFull(err) {
			done.full = append(done.full, k)
			continue
		}

		if err != nil {
			return done, err
		}

		done.written++
		if isNew {
			done.added = append(done.added, k)
		}
	}

	return done, nil
}

// pruneEntries deletes the unwanted keys of m and returns their number.
func pruneEntries[K comparable, V any](m *ebpf.Map, want map[K]V) (int, error) {
	return deleteEntries(m, func(k K, _ V) bool {
		_, ok := want[k]
		return !ok
	})
}

// deleteEntries deletes the entries of m that match and returns their number. An entry that cannot
// be deleted does not stop it.
func deleteEntries[K, V any](m *ebpf.Map, match func(K, V) bool) (deleted int, err error) {
	keys, err := findKeys(m, match)
	for _, k := range keys {
		if e := m.Delete(k); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
			continue
		}

		deleted++
	}

	return deleted, err
}

// findKeys returns the keys of the entries of m that match. After an error it returns those that it
// has found.
func findKeys[K, V any](m *ebpf.Map, match func(K, V) bool) ([]K, error) {
	var keys []K

	err := eachEntry(m, func(k K, v V) {
		if match(k, v) {
			keys = append(keys, k)
		}
	})

	return keys, err
}

// syncEntries sets m to exactly want. It writes new and changed entries before it deletes stale
// ones, and then those that had no room before. It returns the number of writes and of entries
// that have no room.
func syncEntries[K, V comparable](m *ebpf.Map, want map[K]V) (writes, unwritten int, err error) {
	put, err := putEntries(m, want)
	if err != nil {
		return put.written, 0, err
	}

	pruned, err := pruneEntries(m, want)
	if err != nil {
		return put.written + pruned, 0, err
	}

	// The deletions may have made room.
	noRoom := overflow[K, V]{}
	noRoom.add(put.full, want)
	retried, err := writeOverflow(noRoom, m)

	return put.written + pruned + retried.written, len(noRoom), err
}

// syncSet sets m to exactly the keys of want. An error of a write does not keep it from deleting
// stale keys.
func syncSet[K comparable](m *ebpf.Map, want map[K]uint8) error {
	put, err := putEntries(m, want)
	if n := len(put.full); n > 0 {
		err = errors.Join(err, fmt.Errorf("no room for %d of %d entries", n, len(want)))
	}

	_, pruneErr := pruneEntries(m, want)

	return errors.Join(err, pruneErr)
}

// readTable returns the entries of a hash table of K to V.
func readTable[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	table := make(map[K]V)
	err := eachEntry(m, func(k K, v V) { table[k] = v })

	return table, err
}

// eachEntry calls f for every entry of a hash table of K to V. It may miss keys that are added or
// deleted meanwhile.
func eachEntry[K, V any](m *ebpf.Map, f func(K, V)) error {
	const batch = 4096

	keys := make([]K, batch)
	values := make([]V, batch)

	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i, k := range keys[:n] {
			f(k, values[i])
		}

		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

// Table is the fill level of a gateway table.
type Table struct{ Entries, Capacity int }

// Tables returns the fill levels of the pinned tables "ns", "frags", "services", "takeover",
// "host_addrs", "lookup_targets", "sock_frontends", "sock_backends" and, if they are on,
// "shortcuts". Missing tables are left out.
func Tables(pinDir string) (map[string]Table, error) {
	tables := make(map[string]Table)

	err := errors.Join(addTable[gatewayNsKey, gatewaySeen](tables, pinDir, "ns"),
		addTable[gatewayFragKey, gatewayFragSeen](tables, pinDir, "frags"),
		addTable[gatewayServiceKey, uint8](tables, pinDir, "services"),
		addTable[gatewayFlowKey, gatewaySeen](tables, pinDir, "takeover"),
		addTable[gatewayAddr, uint8](tables, pinDir, "host_addrs"),
		addTable[lookupServiceKey, lookupLookupTarget](tables, pinDir, lookupMapLookupTargets),
		addTable[sockFrontKey, sockFront](tables, pinDir, sockMapSockFrontends),
		addTable[sockBackKey, sockBack](tables, pinDir, sockMapSockBackends),
		addTable[gatewayShortcutKey, gatewayShortcut](tables, pinDir, "shortcuts"))
	if err != nil {
		return nil, fmt.Errorf("count table entries: %w", err)
	}

	return tables, nil
}

// addTable adds the fill level of a pinned table of K to V, if it exists.
func addTable[K, V any](tables map[string]Table, pinDir, name string) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	defer m.Close()

	t := Table{Capacity: int(m.MaxEntries())}
	err = eachEntry(m, func(K, V) { t.Entries++ })
	tables[name] = t

	return err
}
