package nb

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// echoes holds the writes of this process, because the database reports them like changes of other
// clients. An echo counts once, and only if the row is as written. A change that may be foreign is
// treated as foreign.
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

// reset is called for a new connection, which reports no writes of the old one.
func (e *echoes) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = nil
}

// written reports whether a changed row is as this process wrote it.
func (e *echoes) written(table string, now model.Model) bool {
	want, ok := e.take(uuidOf(now))
	return ok && want != nil && !managedDiffer(table, want, now)
}

// deleted reports whether this process deleted the row.
func (e *echoes) deleted(row model.Model) bool {
	want, ok := e.take(uuidOf(row))
	return ok && want == nil
}

func (e *echoes) take(uuid string) (model.Model, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, ok := e.rows[uuid]
	delete(e.rows, uuid)
	return m, ok
}
