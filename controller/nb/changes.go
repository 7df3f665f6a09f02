package nb

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// watcher tells owners whose rows others have changed.
type watcher struct {
	cache  *cache.TableCache
	echoes *echoes
	tell   func(plan.Key)
}

// changes tells the owners of rows that are updated or deleted, or taken out
// of their parents. Columns that plans say nothing of do not count; nor do
// rows that come, which their owner's plan does not know of; nor what this
// process has just written.
func changes(c *cache.TableCache, e *echoes, tell func(plan.Key)) cache.EventHandler {
	w := watcher{c, e, tell}
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

// lost tells the owners of rows that the old version referred to and the new
// one does not. Rows that went with it have told already.
func (w watcher) lost(table string, old, now model.Model) {
	for _, c := range children[table] {
		gone, _ := differing(references(old, c.column), references(now, c.column))
		for _, uuid := range gone {
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
		w.tell(k)
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
