package reconcile

import (
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// heavyRows is the size of rows, in bytes as plan.Size counts them, from which a key is heavy. A
// heavy key is reconciled alone, after the other keys of its batch, so that they need not wait for
// it.
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

// batches divides the keys into batches, in the order in which they must be reconciled: first all
// light keys together, then each heavy key alone. Keys for which isLimited returns true are treated
// like heavy ones.
func (h heavyKeys) batches(keys []plan.Key, isLimited func(plan.Key) bool) [][]plan.Key {
	var (
		light []plan.Key
		out   [][]plan.Key
	)

	for _, k := range keys {
		if _, heavy := h[k]; heavy || isLimited(k) {
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
