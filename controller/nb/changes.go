package nb

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// changes calls f with the owners of rows that are updated or deleted. Columns
// that plans say nothing of change all the time (northd writes "up") and do
// not count; nor do rows that come, which their owner's plan does not know of.
func changes(f func(plan.Key)) cache.EventHandler {
	notify := func(row model.Model) {
		if k, err := plan.ParseKey(externalIDs(row)[ownerID]); err == nil {
			f(k)
		}
	}
	return &cache.EventHandlerFuncs{
		UpdateFunc: func(table string, old, now model.Model) {
			if managedDiffer(table, old, now) {
				notify(old)
			}
		},
		DeleteFunc: func(_ string, row model.Model) { notify(row) },
	}
}

func managedDiffer(table string, old, now model.Model) bool {
	for _, column := range columnsOf(table) {
		a, ok := fieldOf(old, column)
		b, _ := fieldOf(now, column)
		if ok && !sameColumn(a, b) {
			return true
		}
	}
	return !maps.Equal(externalIDs(old), externalIDs(now))
}
