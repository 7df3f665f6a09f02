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
// ports outside the SNAT range have no effect. The change is one write.
func (g *Gateway) SyncHostSockets(want []SocketKey) error {
	var bits gatewayPortBits

	for _, s := range want {
		switch s.Proto {
		case protoTCP:
			setBit(&bits.Tcp, s.Port)
		case protoUDP:
			setBit(&bits.Udp, s.Port)
		default:
			return fmt.Errorf("sync host sockets: protocol %d is neither TCP nor UDP", s.Proto)
		}
	}

	if err := g.objs.HostSockets.Put(uint32(0), &bits); err != nil {
		return fmt.Errorf("sync host sockets: %w", err)
	}

	return nil
}

// tableWrites is the result of putEntries.
type tableWrites[K comparable] struct {
	added   []K // new keys
	written int // added or changed
	full    []K // new keys that m has no room for
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

		e := m.Put(k, v)
		if isFull(e) {
			done.full = append(done.full, k)
			continue
		}

		if e != nil {
			return done, e
		}

		done.written++
		if err != nil {
			done.added = append(done.added, k)
		}
	}

	return done, nil
}

// pruneEntries deletes the unwanted keys of m and returns their number.
func pruneEntries[K comparable, V any](m *ebpf.Map, want map[K]V) (int, error) {
	var stale []K

	err := eachEntry(m, func(k K, _ V) {
		if _, ok := want[k]; !ok {
			stale = append(stale, k)
		}
	})
	for _, k := range stale {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, err
		}
	}

	return len(stale), err
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

// TableSizes returns the entries of Tables.
func TableSizes(pinDir string) (map[string]int, error) {
	tables, err := Tables(pinDir)

	sizes := make(map[string]int, len(tables))
	for name, t := range tables {
		sizes[name] = t.Entries
	}

	return sizes, err
}

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
