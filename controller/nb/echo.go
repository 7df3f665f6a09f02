package nb

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// echoes are the changes that this process has made and that the database will
// report like anyone's. An echo counts once and only if the row is as it was
// written: what cannot be told from a foreign change is taken for one.
type echoes struct {
	mu   sync.Mutex             // guards rows
	rows map[string]model.Model // as written, by UUID; nil: deleted
}

// expect notes rows before they are written, by UUID.
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

// forget is for rows that were not written after all.
func (e *echoes) forget(rows map[string]model.Model) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uuid := range rows {
		delete(e.rows, uuid)
	}
}

// reset is for a new connection, which reports nothing of the old one's.
func (e *echoes) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = nil
}

// written says whether a row that has changed is as this process wrote it.
func (e *echoes) written(table string, now model.Model) bool {
	want, ok := e.take(uuidOf(now))
	return ok && want != nil && !managedDiffer(table, want, now)
}

// deleted says whether this process deleted the row.
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
