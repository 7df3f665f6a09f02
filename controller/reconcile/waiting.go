package reconcile

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// wakePerAddress bounds how many owners are woken when an address is released. The owner that has
// waited longest takes the address. The others get it if that owner no longer needs it.
const wakePerAddress = 16

// waitlist has the owners that failed because another owner has what they need. They are planned
// again when that is released, not only after their backoff.
type waitlist struct {
	serial    uint64                          // of the last addressWait
	addresses map[plan.Key]addressWait        // owners that wait for an address
	nodes     map[plan.Key]struct{}           // Nodes that wait for a node id or a subnet
	rows      map[plan.Key]nb.MissingRowError // owners that wait for a row of another owner
}

// addressWait is the wait for any address of a prefix, which has one address if the owner requests
// it.
type addressWait struct {
	prefix netip.Prefix
	serial uint64 // grows with each new wait
}

func newWaitlist() waitlist {
	return waitlist{
		addresses: map[plan.Key]addressWait{},
		nodes:     map[plan.Key]struct{}{},
		rows:      map[plan.Key]nb.MissingRowError{},
	}
}

// record records what the owner waits for now, if the error names it. If the owner already waited
// for the same prefix, it keeps its place.
func (w *waitlist) record(k plan.Key, err error) {
	wait, hasWaited := w.addresses[k]
	w.forget(k)

	var (
		unavailable *ipam.UnavailableError
		missing     *nb.MissingRowError
		pending     *nb.GroupPendingError
	)
	switch {
	case errors.As(err, &unavailable):
		if !hasWaited || wait.prefix != unavailable.For {
			w.serial++
			wait = addressWait{unavailable.For, w.serial}
		}

		w.addresses[k] = wait
	case k.Kind == plan.KindNode && (errors.Is(err, ipam.ErrExhausted) || errors.Is(err, ipam.ErrTaken)):
		w.nodes[k] = struct{}{}
	case errors.As(err, &missing):
		w.rows[k] = *missing
	case errors.As(err, &pending):
		w.rows[k] = nb.MissingRowError{Table: nbmodel.PortGroupTable, ID: pending.Group}
	}
}

// forget removes an owner that no longer waits.
func (w *waitlist) forget(k plan.Key) {
	delete(w.addresses, k)
	delete(w.nodes, k)
	delete(w.rows, k)
}

// groupOf returns the port group whose row a pod waits for, because the group isolates the pod. It
// returns false if the owner is not a pod, or does not wait for a group.
func (w *waitlist) groupOf(k plan.Key) (string, bool) {
	missing := w.rows[k]
	return missing.ID, k.Kind == plan.KindPod && missing.Table == nbmodel.PortGroupTable
}

// wanting returns the owners that wait for one of the released addresses. For each address, it
// returns at most wakePerAddress owners, which are those that have waited longest.
func (w *waitlist) wanting(released []netip.Addr) []plan.Key {
	if len(w.addresses) == 0 {
		return nil
	}

	var out []plan.Key

	for _, a := range released {
		var keys []plan.Key

		for k, wait := range w.addresses {
			if wait.prefix.Contains(a) {
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
func (w *waitlist) referring(rows []plan.Row) []plan.Key {
	if len(w.rows) == 0 || len(rows) == 0 {
		return nil
	}

	present := map[nb.MissingRowError]bool{}
	for _, r := range rows {
		present[nb.MissingRowError{Table: r.Table(), ID: r.ID()}] = true
	}

	var out []plan.Key

	for k, missing := range w.rows {
		if present[missing] {
			out = append(out, k)
		}
	}

	slices.SortFunc(out, plan.Key.Compare)

	return out
}
