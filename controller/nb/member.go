package nb

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// members indexes which rows refer to a row, by column. It is kept from one batch to the next: only
// rows that were touched since are read again. One batch at a time uses it; only touch is safe for
// concurrent use.
type members struct {
	cache   *cache.TableCache
	columns map[string]*column // by Table.column
	usage   usage
	names   uuidCache

	mu      sync.Mutex // guards touched
	touched map[string]map[string]bool
}

// column is one column of all rows of a table.
type column struct {
	name    string
	rows    map[string]model.Model // as read, by UUID
	parents map[string][]string    // the UUIDs of the parents of a row, by UUID
	whole   bool                   // read since the connection began or since Owners
	fresh   bool                   // read since the batch began
}

// begin starts a batch on a connection's cache.
func (m *members) begin(c *cache.TableCache) {
	m.connect(c)

	for _, c := range m.columns {
		c.fresh = false
	}
}

func (m *members) connect(c *cache.TableCache) {
	if m.cache != c {
		m.cache, m.columns, m.usage = c, map[string]*column{}, nil
		m.mu.Lock()
		m.touched = map[string]map[string]bool{}
		m.mu.Unlock()
		m.names.reset()
	}
}

// touch marks a row as changed. The cache's events call it soon after a change, and commits call it
// at once for their own writes.
func (m *members) touch(table, uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, c := range children[table] {
		if of := m.touched[table+"."+c.column]; of != nil {
			of[uuid] = true
		}
	}
}

// takeTouched returns the rows touched since its last call, or nil the first time.
func (m *members) takeTouched(kind string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	last := m.touched[kind]
	m.touched[kind] = map[string]bool{}

	return last
}

// events returns a handler that touches every row that changes in the cache.
func (m *members) events() cache.EventHandler {
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, row model.Model) { m.touch(table, uuidOf(row)) },
		UpdateFunc: func(table string, old, row model.Model) {
			m.touch(table, uuidOf(row))
			m.names.changed(table, old, row)
		},
		DeleteFunc: func(table string, row model.Model) { m.touch(table, uuidOf(row)) },
	}
}

// touchWritten touches the rows that a transaction has changed.
func (m *members) touchWritten(ops []ovsdb.Operation, results []ovsdb.OperationResult) {
	named := map[string]string{}

	for i, op := range ops {
		if op.Op == ovsdb.OperationInsert && i < len(results) {
			named[op.UUIDName] = results[i].UUID.GoUUID
			m.touch(op.Table, results[i].UUID.GoUUID)
		}
	}

	for _, op := range ops {
		for _, where := range op.Where {
			if uuid, ok := where.Value.(ovsdb.UUID); ok {
				m.touch(op.Table, cmp.Or(named[uuid.GoUUID], uuid.GoUUID))
			}
		}
	}
}

// learn sets the usage of tables for a connection's cache. It discards all columns, because the
// cache drops events when too many are queued.
func (m *members) learn(c *cache.TableCache, u usage) {
	m.connect(c)
	m.names.reset()

	m.usage = u
	for _, c := range m.columns {
		c.whole = false
	}
}

// has reports whether the parent's column refers to the row.
func (m *members) has(p membership, parent, uuid string) bool {
	return slices.Contains(m.indexOf(p.parent.table + "." + p.column)[uuid], parent)
}

// indexOf returns the index of the column, given as Table.column.
func (m *members) indexOf(kind string) map[string][]string {
	table, name := splitParent(kind)

	c := m.columns[kind]
	if c == nil {
		c = &column{name: name, rows: map[string]model.Model{}, parents: map[string][]string{}}
		m.columns[kind] = c
	}

	if rows := m.cache.Table(table); !c.fresh && rows != nil {
		touched := m.takeTouched(kind) // before reading: a row touched later is read in the next batch
		if few := len(touched) <= len(c.rows)/4; c.whole && few {
			for uuid := range touched {
				c.replace(uuid, c.rows[uuid], rows.Row(uuid))
			}
		} else {
			c.read(rows.RowsShallow())
		}

		c.fresh, c.whole = true, true
	}

	return c.parents
}

// children returns the rows that a row refers to by the column.
func (m *members) children(kind, parent string) []string {
	m.indexOf(kind)
	return references(m.columns[kind].rows[parent], m.columns[kind].name)
}

// isOurs reports whether a row that was read for the column belongs to one of our owners, or to a
// table without owners.
func (m *members) isOurs(kind, parent string) bool {
	table, _ := splitParent(kind)
	return !tables[table].hasIDs || externalIDs(m.columns[kind].rows[parent])[ownerID] != ""
}

func (c *column) read(rows map[string]model.Model) {
	for uuid, was := range c.rows {
		if rows[uuid] == nil {
			c.replace(uuid, was, nil)
		}
	}

	for uuid, is := range rows {
		if was := c.rows[uuid]; was != is {
			c.replace(uuid, was, is)
		}
	}
}

// replace updates the index after the references of a row have changed from was to is.
func (c *column) replace(parent string, was, is model.Model) {
	removed, added := differing(references(was, c.name), references(is, c.name))
	for _, uuid := range removed {
		c.forget(uuid, parent)
	}

	for _, uuid := range added {
		c.parents[uuid] = append(c.parents[uuid], parent)
	}

	if is == nil {
		delete(c.rows, parent)
		return
	}

	c.rows[parent] = is
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

	came := make(map[string]bool, len(added))
	for _, uuid := range added {
		came[uuid] = true
	}

	removed = slices.DeleteFunc(removed, func(uuid string) bool {
		moved := came[uuid]
		delete(came, uuid)

		return moved
	})

	return removed, slices.DeleteFunc(added, func(uuid string) bool { return !came[uuid] })
}

func (c *column) forget(uuid, parent string) {
	left := slices.DeleteFunc(c.parents[uuid], func(p string) bool { return p == parent })
	if len(left) == 0 {
		delete(c.parents, uuid)
		return
	}

	c.parents[uuid] = left
}

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

// removalOps takes a remaining row out of parents that the plan no longer names, if we own those
// parents. Other clients may refer to our rows, too. Only rows of tables with several kinds of
// parents change parents: in other tables the parent is part of the row's identity.
func (b *batch) removalOps(r *record, resolve func(ref) string) []ovsdb.Operation {
	kinds := tables[r.table].parents
	if r.old == nil || len(kinds) < 2 {
		return nil
	}

	var ops []ovsdb.Operation

	for _, kind := range kinds {
		table, column := splitParent(kind)

		planned := func(parent string) bool {
			return slices.ContainsFunc(r.parents, func(p membership) bool {
				return p.parent.table == table && p.column == column && resolve(p.parent) == parent
			})
		}

		for _, parent := range slices.Sorted(slices.Values(b.members.indexOf(kind)[r.uuid])) {
			if !planned(parent) && b.members.isOurs(kind, parent) {
				ops = append(ops, removal(table, parent, column, r.uuid))
			}
		}
	}

	return ops
}

func removal(table, parent, column, uuid string) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: table, Where: whereUUID(parent),
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, uuidSet(uuid))},
	}
}
