package reconcile

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// wakePerAddress bounds how many owners are woken when an address is released. The owner that
// waits longest takes it; the others are a reserve in case it no longer needs it.
const wakePerAddress = 16

// waiting are owners that failed because another owner has what they need. They are planned again
// when it is released, not only after their backoff.
type waiting struct {
	serial    uint64
	addresses map[plan.Key]wish
	nodes     map[plan.Key]struct{}           // for a node's id or subnet
	rows      map[plan.Key]nb.MissingRowError // for a row of another owner
}

type wish struct {
	prefix netip.Prefix
	serial uint64 // who came first
}

func newWaiting() waiting {
	return waiting{
		addresses: map[plan.Key]wish{},
		nodes:     map[plan.Key]struct{}{},
		rows:      map[plan.Key]nb.MissingRowError{},
	}
}

// note records what the owner waits for now, if the error says so. The owner keeps the place in the
// queue of its first wait.
func (w *waiting) note(k plan.Key, err error) {
	old, had := w.addresses[k]
	w.forget(k)

	var (
		unavailable *ipam.UnavailableError
		missing     *nb.MissingRowError
	)
	switch {
	case errors.As(err, &unavailable):
		if !had || old.prefix != unavailable.For {
			w.serial++
			old = wish{unavailable.For, w.serial}
		}

		w.addresses[k] = old
	case k.Kind == plan.KindNode && (errors.Is(err, ipam.ErrExhausted) || errors.Is(err, ipam.ErrTaken)):
		w.nodes[k] = struct{}{}
	case errors.As(err, &missing):
		w.rows[k] = *missing
	}
}

func (w *waiting) forget(k plan.Key) {
	delete(w.addresses, k)
	delete(w.nodes, k)
	delete(w.rows, k)
}

// wanting returns the owners that the released addresses may help, the longest waiting first.
func (w *waiting) wanting(released []netip.Addr) []plan.Key {
	if len(w.addresses) == 0 {
		return nil
	}

	var out []plan.Key

	for _, a := range released {
		var keys []plan.Key

		for k, want := range w.addresses {
			if want.prefix.Contains(a) {
				keys = append(keys, k)
			}
		}

		slices.SortFunc(keys, func(x, y plan.Key) int {
			return cmp.Compare(w.addresses[x].serial, w.addresses[y].serial)
		})
		out = append(out, keys[:min(len(keys), wakePerAddress)]...)
	}

	return out
}

// referring returns the owners that wait for one of the rows.
func (w *waiting) referring(rows []plan.Row) []plan.Key {
	if len(w.rows) == 0 || len(rows) == 0 {
		return nil
	}

	there := map[nb.MissingRowError]bool{}
	for _, r := range rows {
		there[nb.MissingRowError{Table: r.Table(), ID: r.ID()}] = true
	}

	var out []plan.Key

	for k, missing := range w.rows {
		if there[missing] {
			out = append(out, k)
		}
	}

	slices.SortFunc(out, plan.Key.Compare)

	return out
}

// heavyRows is the size of rows, in bytes of matches and VIPs, from which a key is reconciled
// alone, after the other keys of its batch. These need not wait until it is planned and written.
const heavyRows = 1 << 20

// largeKeys are the keys whose rows were large when they were last planned.
type largeKeys map[plan.Key]struct{}

// note records the size of the key's rows.
func (h largeKeys) note(k plan.Key, rows []plan.Row) {
	if plan.Size(rows) >= heavyRows {
		h[k] = struct{}{}
	} else {
		delete(h, k)
	}
}

// batches returns the keys in the groups and the order in which they must be reconciled. Owners for
// which alone returns true are treated like heavy ones.
func (h largeKeys) batches(keys []plan.Key, alone func(plan.Key) bool) [][]plan.Key {
	var (
		light []plan.Key
		out   [][]plan.Key
	)

	for _, k := range keys {
		if _, is := h[k]; is || alone(k) {
			out = append(out, []plan.Key{k})
		} else {
			light = append(light, k)
		}
	}

	if len(light) > 0 {
		out = slices.Insert(out, 0, light)
	}

	return out
}
