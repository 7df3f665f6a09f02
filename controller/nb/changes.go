package nb

import (
	"maps"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// changeHandler notifies owners of changes to their rows that another client has made.
type changeHandler struct {
	cache  *cache.TableCache
	echoes *echoes
	send   func(plan.Key)
}

// newChangeHandler returns a handler of the cache's events. It notifies the owners of rows that
// are updated, deleted or removed from their parents. It ignores:
//   - columns that plans do not set;
//   - new rows, which no plan contains;
//   - the writes of this process.
func newChangeHandler(c *cache.TableCache, e *echoes, send func(plan.Key)) cache.EventHandler {
	h := changeHandler{c, e, send}
	return &cache.EventHandlerFuncs{UpdateFunc: h.handleUpdate, DeleteFunc: h.handleDelete}
}

// handleUpdate notifies the owner of a row in which a planned column changed, and the owners of
// rows that it no longer refers to.
func (h changeHandler) handleUpdate(table string, old, now model.Model) {
	if managedDiffer(table, old, now) && !h.echoes.takeWritten(table, now) {
		h.notify(table, old)
	}

	h.notifyRemoved(table, old, now)
}

// handleDelete notifies the owner of a deleted row, and the owners of rows that it referred to. If this
// process has deleted a port group, the owners of the ports in it are not notified: the plan has no use
// for the group any more, and they would all be planned again for nothing.
func (h changeHandler) handleDelete(table string, row model.Model) {
	isOwn := h.echoes.takeDeleted(row)
	if !isOwn {
		h.notify(table, row)
	}

	if !isOwn || table != nbmodel.PortGroupTable {
		h.notifyRemoved(table, row, nil)
	}
}

// notifyRemoved notifies the owners of rows to which only the old version of their parent referred.
// A row that was deleted as well has its own event. A nil now means that the parent was deleted. Owners
// of placeholders are not notified, because no plan has their groups.
func (h changeHandler) notifyRemoved(table string, old, now model.Model) {
	for _, c := range children[table] {
		removed, _ := differing(references(old, c.column), references(now, c.column))
		for _, uuid := range removed {
			if rows := h.cache.Table(c.table); rows != nil && rows.HasRow(uuid) {
				if row := rows.Row(uuid); row != nil && !isPlaceholder(c.table, nameOf(row)) {
					h.notify(c.table, row)
				}
			}
		}
	}
}

// notify notifies the owner of a row, if it has one.
func (h changeHandler) notify(table string, row model.Model) {
	if k, err := plan.ParseKey(ownerOf(table, row)); err == nil {
		h.send(k)
	}
}

// managedDiffer reports whether the columns that plans set, or external_ids, differ.
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

// echoes holds the writes of this process until the database reports them, because it reports them
// like changes of other clients. A report is an echo only if it is the first one since the write,
// and the row is as written. All other reports count as changes of other clients, because a
// needless notification costs less than a missing one.
type echoes struct {
	mu   sync.Mutex             // guards rows
	rows map[string]model.Model // as written, by UUID; nil: deleted
}

// expect records rows by UUID before they are written.
func (e *echoes) expect(rows map[string]model.Model) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.rows == nil {
		e.rows = map[string]model.Model{}
	}

	for uuid, m := range rows {
		e.rows[uuid] = m
	}
}

// forget removes rows that were not written after all.
func (e *echoes) forget(rows map[string]model.Model) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for uuid := range rows {
		delete(e.rows, uuid)
	}
}

// reset forgets all writes: a new connection does not report those of the old one.
func (e *echoes) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.rows = nil
}

// takeWritten removes the write of a row, and reports whether the row is as this process wrote it.
func (e *echoes) takeWritten(table string, now model.Model) bool {
	want, ok := e.take(uuidOf(now))
	return ok && want != nil && !managedDiffer(table, want, now)
}

// takeDeleted removes the write of a row, and reports whether this process deleted the row.
func (e *echoes) takeDeleted(row model.Model) bool {
	want, ok := e.take(uuidOf(row))
	return ok && want == nil
}

// take removes the write of a row and returns it. It returns false if the row was not written.
func (e *echoes) take(uuid string) (model.Model, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()

	m, ok := e.rows[uuid]
	delete(e.rows, uuid)

	return m, ok
}
