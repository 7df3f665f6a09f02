package reconcile

import (
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// heavyRows is the size of rows, in bytes of matches and VIPs, from which a key is reconciled
// alone, after the other keys of its batch. These need not wait until it is planned and written.
const heavyRows = 1 << 20

// heavy are the keys whose rows were large when they were last planned.
type heavy map[plan.Key]struct{}

// note records the size of the key's rows.
func (h heavy) note(k plan.Key, rows []plan.Row) {
	if plan.Size(rows) >= heavyRows {
		h[k] = struct{}{}
	} else {
		delete(h, k)
	}
}

// batches returns the keys in the groups and the order in which they must be reconciled.
func (h heavy) batches(keys []plan.Key) [][]plan.Key {
	var light []plan.Key
	var out [][]plan.Key
	for _, k := range keys {
		if _, is := h[k]; is {
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
