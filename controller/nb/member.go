package nb

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// members know which rows refer to a row, by column. What was read for one batch serves the
// next: only rows that have been touched since are read again. One batch at a time uses
// them, but for touch.
type members struct {
	cache   *cache.TableCache
	columns map[string]*column // by Table.column
	usage   usage
	names   named

	mu      sync.Mutex // guards touched
	touched map[string]map[string]bool
}

// column is one column of all rows of a table.
type column struct {
	name    string
	rows    map[string]model.Model // as read, by UUID
	parents map[string][]string    // the UUIDs of those that refer to it, by UUID
	whole   bool                   // read since the connection began or owners were counted
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

// touch notes that a row of a table is not what it was: the cache's events tell so, soon
// after the cache has it, and commits at once of what they write.
func (m *members) touch(table, uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range children[table] {
		if of := m.touched[table+"."+c.column]; of != nil {
			of[uuid] = true
		}
	}
}

// took returns which rows were touched since it was called last, nil the first time.
func (m *members) took(kind string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.touched[kind]
	m.touched[kind] = map[string]bool{}
	return last
}

// events tell of every change of the cache.
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

// wrote touches what a transaction has changed.
func (m *members) wrote(ops []ovsdb.Operation, results []ovsdb.OperationResult) {
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

// learn notes what owners have in a connection's cache. All is read again after that: the
// cache drops events when too many wait.
func (m *members) learn(c *cache.TableCache, u usage) {
	m.connect(c)
	m.names.reset()
	m.usage = u
	for _, c := range m.columns {
		c.whole = false
	}
}

// has says whether the parent's column refers to the row.
func (m *members) has(p membership, parent, uuid string) bool {
	return slices.Contains(m.of(p.parent.table + "." + p.column)[uuid], parent)
}

// of returns who refers to whom by the column, Table.column.
func (m *members) of(kind string) map[string][]string {
	table, name := splitParent(kind)
	c := m.columns[kind]
	if c == nil {
		c = &column{name: name, rows: map[string]model.Model{}, parents: map[string][]string{}}
		m.columns[kind] = c
	}
	if rows := m.cache.Table(table); !c.fresh && rows != nil {
		touched := m.took(kind) // before it reads: what is touched from here on is read next time
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

// children returns which rows a row refers to by the column.
func (m *members) children(kind, parent string) []string {
	m.of(kind)
	return references(m.columns[kind].rows[parent], m.columns[kind].name)
}

// ours says whether a row that was read for the column has an owner of ours,
// or is of a table where none can.
func (m *members) ours(kind, parent string) bool {
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

// replace notes what a row refers to now and did not, and the other way round.
func (c *column) replace(parent string, was, is model.Model) {
	gone, come := differing(references(was, c.name), references(is, c.name))
	for _, uuid := range gone {
		c.forget(uuid, parent)
	}
	for _, uuid := range come {
		c.parents[uuid] = append(c.parents[uuid], parent)
	}
	if is == nil {
		delete(c.rows, parent)
		return
	}
	c.rows[parent] = is
}

// differing returns what only the one and only the other set has. Sets that
// have much in common have it in the same places, as the cache keeps them, so
// that is compared first: a group may have all pods.
func differing(old, now []string) (gone, come []string) {
	n := min(len(old), len(now))
	for i := range n {
		if old[i] != now[i] {
			gone, come = append(gone, old[i]), append(come, now[i])
		}
	}
	gone, come = append(gone, old[n:]...), append(come, now[n:]...)
	if len(gone) == 0 || len(come) == 0 {
		return gone, come
	}
	came := make(map[string]bool, len(come))
	for _, uuid := range come {
		came[uuid] = true
	}
	gone = slices.DeleteFunc(gone, func(uuid string) bool {
		moved := came[uuid]
		delete(came, uuid)
		return moved
	})
	return gone, slices.DeleteFunc(come, func(uuid string) bool { return !came[uuid] })
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

// removalOps take a row that stays out of parents that the plan does not name
// any more, if they are ours: others may refer to our rows. Only rows of a table
// with several kinds of parents change theirs: elsewhere the parent is part of
// what the row is.
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
		for _, parent := range slices.Sorted(slices.Values(b.members.of(kind)[r.uuid])) {
			if !planned(parent) && b.members.ours(kind, parent) {
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
