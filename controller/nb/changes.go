package nb

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// watcher notifies owners of changes to their rows that another client has made.
type watcher struct {
	cache  *cache.TableCache
	echoes *echoes
	send   func(plan.Key)
}

// changes notifies the owners of rows that are updated, deleted or removed from their parents. It
// ignores:
//   - columns that plans do not set;
//   - new rows, which no plan contains;
//   - the writes of this process.
func changes(c *cache.TableCache, e *echoes, send func(plan.Key)) cache.EventHandler {
	w := watcher{c, e, send}
	return &cache.EventHandlerFuncs{UpdateFunc: w.updated, DeleteFunc: w.deleted}
}

func (w watcher) updated(table string, old, now model.Model) {
	if managedDiffer(table, old, now) && !w.echoes.written(table, now) {
		w.notify(table, old)
	}
	w.lost(table, old, now)
}

func (w watcher) deleted(table string, row model.Model) {
	if !w.echoes.deleted(row) {
		w.notify(table, row)
	}
	w.lost(table, row, nil)
}

// lost notifies the owners of rows that only the old version referred to. Rows that were deleted as
// well have their own event.
func (w watcher) lost(table string, old, now model.Model) {
	for _, c := range children[table] {
		removed, _ := differing(references(old, c.column), references(now, c.column))
		for _, uuid := range removed {
			if rows := w.cache.Table(c.table); rows != nil && rows.HasRow(uuid) {
				if row := rows.Row(uuid); row != nil {
					w.notify(c.table, row)
				}
			}
		}
	}
}

func (w watcher) notify(table string, row model.Model) {
	if k, err := plan.ParseKey(ownerOf(table, row)); err == nil {
		w.send(k)
	}
}

func managedDiffer(table string, old, now model.Model) bool {
	for _, column := range tables[table].columns {
		a, ok := fieldOf(old, column)
		b, _ := fieldOf(now, column)
		if ok && !sameColumn(a, b) {
			return true
		}
	}
	return !maps.Equal(externalIDs(old), externalIDs(now))
}
