package nb

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// members answers which rows refer to a row. OVSDB has references in one direction only: a parent,
// such as a switch, has the UUIDs of its children, such as ports, in one of its columns. A column
// is given by its path, Table.column.
//
// A column is read when a batch first asks for it. It is kept from one batch to the next, because a
// table may have all pods. touch marks the rows that change in the meantime, and the next batch
// reads only these again. One batch at a time uses members. touch, and the handler that events
// returns, are safe for concurrent use.
type members struct {
	cache   *cache.TableCache  // of the connection
	columns map[string]*column // by path
	usage   usage
	names   uuidCache

	mu      sync.Mutex                 // guards touched
	touched map[string]map[string]bool // UUIDs of changed parents, by path; a missing path was never read
}

// column is one column with references, of all rows of a table.
type column struct {
	name    string
	rows    map[string]model.Model // the parents as they were read, by UUID
	parents map[string][]string    // the index: the UUIDs of the parents of a child, by the child's UUID
	isWhole bool                   // all rows were read since the connection began, or since Owners
	isFresh bool                   // touched rows were read since the batch began
}

// begin starts a batch on a connection's cache.
func (m *members) begin(c *cache.TableCache) {
	m.connect(c)

	for _, c := range m.columns {
		c.isFresh = false
	}
}

// connect empties the index if the cache is another connection's.
func (m *members) connect(c *cache.TableCache) {
	if m.cache == c {
		return
	}

	m.cache, m.columns, m.usage = c, map[string]*column{}, nil

	m.mu.Lock()
	m.touched = map[string]map[string]bool{}
	m.mu.Unlock()

	m.names.reset()
}

// touch marks a row as changed. The cache's events call it soon after a change, and commits call
// it at once for their own writes.
func (m *members) touch(table, uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, c := range children[table] {
		if uuids := m.touched[table+"."+c.column]; uuids != nil {
			uuids[uuid] = true
		}
	}
}

// takeTouched returns the UUIDs of the rows with this column that were touched since its last call,
// or nil the first time.
func (m *members) takeTouched(path string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	touched := m.touched[path]
	m.touched[path] = map[string]bool{}

	return touched
}

// events returns a handler of the cache's events that touches every row that changes.
func (m *members) events() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, row model.Model) { m.touch(table, uuidOf(row)) },
		UpdateFunc: func(table string, old, row model.Model) {
			m.touch(table, uuidOf(row))
			m.names.update(table, old, row)
		},
		DeleteFunc: func(table string, row model.Model) { m.touch(table, uuidOf(row)) },
	}
}

// touchWritten touches the rows that a transaction has changed. results are those of ops.
func (m *members) touchWritten(ops []ovsdb.Operation, results []ovsdb.OperationResult) {
	inserted := map[string]string{} // UUIDs of new rows, by their names in the transaction

	for i, op := range ops {
		if op.Op == ovsdb.OperationInsert && i < len(results) {
			inserted[op.UUIDName] = results[i].UUID.GoUUID
			m.touch(op.Table, results[i].UUID.GoUUID)
		}
	}

	for _, op := range ops {
		for _, where := range op.Where {
			if uuid, ok := where.Value.(ovsdb.UUID); ok {
				m.touch(op.Table, cmp.Or(inserted[uuid.GoUUID], uuid.GoUUID))
			}
		}
	}
}

// learn sets the usage of tables for a connection's cache. It has all columns read again, because
// the cache drops events when too many are queued, and a full sync (DB.Owners) must find such
// changes.
func (m *members) learn(c *cache.TableCache, u usage) {
	m.connect(c)
	m.names.reset()

	m.usage = u
	for _, c := range m.columns {
		c.isWhole = false
	}
}

// has reports whether the column of the parent refers to the row. parent is the UUID of p.parent,
// and uuid that of the row.
func (m *members) has(p membership, parent, uuid string) bool {
	return slices.Contains(m.indexOf(p.parent.table + "." + p.column)[uuid], parent)
}

// indexOf returns the index of a column: the UUIDs of the parents that refer to a row, by the row's
// UUID. It first brings the index up to date.
func (m *members) indexOf(path string) map[string][]string {
	table, name := splitParent(path)

	c := m.columns[path]
	if c == nil {
		c = &column{name: name, rows: map[string]model.Model{}, parents: map[string][]string{}}
		m.columns[path] = c
	}

	if rows := m.cache.Table(table); !c.isFresh && rows != nil {
		touched := m.takeTouched(path) // before reading: a row touched later is read in the next batch

		// Reading a row alone copies it, so reading all is faster if many were touched.
		if isFew := len(touched) <= len(c.rows)/4; c.isWhole && isFew {
			for uuid := range touched {
				c.replace(uuid, c.rows[uuid], rows.Row(uuid))
			}
		} else {
			c.read(rows.RowsShallow())
		}

		c.isFresh, c.isWhole = true, true
	}

	return c.parents
}

// children returns the UUIDs of the rows that a parent refers to by the column.
func (m *members) children(path, parent string) []string {
	m.indexOf(path)
	return references(m.columns[path].rows[parent], m.columns[path].name)
}

// isOurs reports whether a parent that indexOf has read belongs to one of our owners, or to a table
// without external_ids.
func (m *members) isOurs(path, parent string) bool {
	table, _ := splitParent(path)
	return !tables[table].hasIDs || externalIDs(m.columns[path].rows[parent])[ownerID] != ""
}

// read makes rows all rows of the column.
func (c *column) read(rows map[string]model.Model) {
	for uuid, old := range c.rows {
		if rows[uuid] == nil {
			c.replace(uuid, old, nil)
		}
	}

	for uuid, now := range rows {
		if old := c.rows[uuid]; old != now {
			c.replace(uuid, old, now)
		}
	}
}

// replace updates the index after a row has changed. old is nil for a new row, now for a deleted
// one.
func (c *column) replace(parent string, old, now model.Model) {
	removed, added := differing(references(old, c.name), references(now, c.name))
	for _, uuid := range removed {
		c.forget(uuid, parent)
	}

	for _, uuid := range added {
		c.parents[uuid] = append(c.parents[uuid], parent)
	}

	if now == nil {
		delete(c.rows, parent)
		return
	}

	c.rows[parent] = now
}

// differing returns the elements that only one of the sets has. The cache keeps the order of
// elements, so equal elements are mostly at the same index, and those are compared first: a group
// may have all pods.
func differing(old, now []string) (removed, added []string) {
	n := min(len(old), len(now))
	for i := range n {
		if old[i] != now[i] {
			removed, added = append(removed, old[i]), append(added, now[i])
		}
	}

	removed, added = append(removed, old[n:]...), append(added, now[n:]...)
	if len(removed) == 0 || len(added) == 0 {
		return removed, added
	}

	// An element in both lists is at another index, but in both sets.
	isAdded := make(map[string]bool, len(added))
	for _, uuid := range added {
		isAdded[uuid] = true
	}

	removed = slices.DeleteFunc(removed, func(uuid string) bool {
		inBoth := isAdded[uuid]
		delete(isAdded, uuid)

		return inBoth
	})

	return removed, slices.DeleteFunc(added, func(uuid string) bool { return !isAdded[uuid] })
}

// forget removes a parent of a row from the index.
func (c *column) forget(uuid, parent string) {
	left := slices.DeleteFunc(c.parents[uuid], func(p string) bool { return p == parent })
	if len(left) == 0 {
		delete(c.parents, uuid)
		return
	}

	c.parents[uuid] = left
}

// references returns the UUIDs in a column of a row. The row may be nil.
func references(m model.Model, column string) []string {
	if m == nil {
		return nil
	}

	f, ok := fieldOf(m, column)
	if !ok {
		return nil
	}

	uuids, _ := f.Interface().([]string)

	return uuids
}
