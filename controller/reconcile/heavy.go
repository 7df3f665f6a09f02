package reconcile

import (
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// heavyRows is the size of rows, in bytes as plan.Size counts them, from which a key is heavy. A
// heavy key is reconciled alone, so that others need not wait for it.
const heavyRows = 1 << 20

// heavyKeys are the keys that were heavy when they were last planned.
type heavyKeys map[plan.Key]struct{}

// record records whether the key is heavy with these rows.
func (h heavyKeys) record(k plan.Key, rows []plan.Row) {
	if plan.Size(rows) >= heavyRows {
		h[k] = struct{}{}
	} else {
		delete(h, k)
	}
}

// has reports whether the key was heavy.
func (h heavyKeys) has(k plan.Key) bool {
	_, has := h[k]
	return has
}
