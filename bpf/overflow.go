package bpf

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// overflow holds the wanted entries that a full table has no room for. A full table is not an
// error: it keeps the wanted entries that it has, and the others are written as soon as there is
// room. Unwritten of Gateway, Sock and Lookup returns their number.
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

// writeOverflow moves entries from o to the table while the table has room for them.
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

// isFull reports whether a write failed because the table has no room for a new entry.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) }

// Unwritten returns the number of wanted entries without room, by table. Tables with room for all
// are included, with 0.
func (g *Gateway) Unwritten() map[string]int {
	return map[string]int{"host_addrs": g.unwrittenAddrs, "services": len(g.unwritten)}
}
