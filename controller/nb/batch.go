package nb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// batch is the difference between the current and the planned rows of some owners. It has two
// steps:
//
//  1. add, for each owner, divides its rows into planned ones (records), with the existing row of
//     each, and existing ones that are not planned (stale).
//  2. operations resolves the references between rows, which may be new rows of other owners of the
//     batch. It returns the transaction: inserts and updates, changes of parents' columns that
//     refer to rows, and deletions.
type batch struct {
	cache   *cache.TableCache
	schema  ovsdb.DatabaseSchema
	records map[plan.Key][]*record
	stale   map[plan.Key][]staleRow
	found   map[ref]model.Model    // rows looked up by name; nil: no such row
	members *members               // which rows refer to a row, as of the beginning of the batch
	writes  map[string]model.Model // rows as written, by UUID; nil: deleted; see echoes
	allowed map[plan.Key]*Allowance
	groups  groupChanges // port groups that the allowances have paid for
	pending map[plan.Key]*GroupPendingError
	later   []laterJoins // of the ports in the batch
	serial  int          // of the last new row

	isolations *joins                 // of ports that wait for groups which isolate them; set by commit
	missing    map[string]*laterJoins // of ports in the batch, by name: such groups that do not exist
	isolated   []join                 // of isolations: those in the transaction
}

// staleRow is a row that its owner no longer plans.
type staleRow struct {
	table, uuid string
	row         model.Model
	keep        map[string]string // VIPs that a load balancer keeps until a later commit; nil: it is deleted
}

// newBatch returns an empty batch. Owners without an allowance are not limited.
func newBatch(conn client.Client, m *members, allowed map[plan.Key]*Allowance) *batch {
	m.begin(conn.Cache())

	return &batch{
		cache:   conn.Cache(),
		schema:  conn.Schema(),
		records: map[plan.Key][]*record{},
		stale:   map[plan.Key][]staleRow{},
		found:   map[ref]model.Model{},
		members: m,
		writes:  map[string]model.Model{},
		allowed: allowed,
		groups:  groupChanges{},
		pending: map[plan.Key]*GroupPendingError{},
		missing: map[string]*laterJoins{},
	}
}

// add adds one owner: it finds which planned rows exist, which are new, and which existing rows are
// stale. It then leaves out the changes that exceed the owner's allowance.
func (b *batch) add(key plan.Key, rows []plan.Row) error {
	if b.cache == nil {
		return ErrNotConnected
	}

	for _, row := range rows {
		b.members.usage.add(key.Kind, row.Table())
	}

	have, err := b.owned(key)
	if err != nil {
		return err
	}

	b.records[key] = b.newRecords(key, rows, have)

	// newRecords has removed the planned rows from have.
	for identity, remaining := range have {
		for _, m := range remaining {
			b.stale[key] = append(b.stale[key], staleRow{table: identity.table, uuid: uuidOf(m), row: m})
		}
	}

	slices.SortFunc(b.stale[key], func(x, y staleRow) int {
		return cmp.Or(cmp.Compare(x.table, y.table), cmp.Compare(x.uuid, y.uuid))
	})

	if a := b.allowed[key]; a != nil {
		b.restrict(key, a)
	}

	return nil
}

// newRecords returns the planned rows with their states in the database. It removes from have the
// rows that it finds there.
func (b *batch) newRecords(key plan.Key, rows []plan.Row, have map[ref][]model.Model) []*record {
	var records []*record

	for _, row := range rows {
		if !b.hasTable(row.Table()) {
			continue
		}

		r := newRecord(key, row)

		identity := ref{r.table, r.id}
		if !tables[r.table].hasIDs && !ownedByPort(r.table) { // owned does not find its rows
			r.old = b.lookup(identity)
		} else if same := have[identity]; len(same) > 0 {
			r.old, have[identity] = same[0], same[1:]
		}

		if r.old != nil {
			r.uuid = uuidOf(r.old)
		} else {
			b.serial++
			r.uuid = "row" + strconv.Itoa(b.serial)
		}

		records = append(records, r)
	}

	return records
}

// hasTable reports whether the database's schema has the table. The model is fitted to that
// schema.
func (b *batch) hasTable(table string) bool { return b.cache.DatabaseModel().Types()[table] != nil }

// hasColumn reports whether the database's schema has the column.
func (b *batch) hasColumn(table, column string) bool {
	row := b.cache.DatabaseModel().Types()[table]
	if row == nil {
		return false
	}

	_, ok := layouts.layoutOf(row.Elem())[column]

	return ok
}

// owned returns the rows of the owner, by table and ID. Several rows may have the same ID, for
// example after two controllers have written at the same time. Rows of Load_Balancer_Group are left
// out, because they do not name their owner.
func (b *batch) owned(key plan.Key) (map[ref][]model.Model, error) {
	have := map[ref][]model.Model{}

	for _, t := range plan.Types() {
		table := t.Table()
		if !b.members.usage.has(key.Kind, table) {
			continue
		}

		var found []map[string]model.Model

		if tables[table].hasIDs {
			rows, err := rowsOf(b.cache, table, key.String())
			if err != nil {
				return nil, err
			}

			found = append(found, rows)
		} else if ownedByPort(table) {
			for _, port := range plan.OwnedPorts(key) {
				rows, err := rowsOfPort(b.cache, table, port)
				if err != nil {
					return nil, err
				}

				found = append(found, rows)
			}
		}

		for _, rows := range found {
			for _, m := range inOrder(rows) {
				identity := ref{table, idOf(table, m)}
				have[identity] = append(have[identity], m)
			}
		}
	}

	return have, nil
}

// lookup returns the row of that name that belongs to one of our owners. In tables without
// external_ids it returns any row of that name. It returns nil if there is none.
func (b *batch) lookup(r ref) model.Model {
	if m, ok := b.found[r]; ok {
		return m
	}

	b.found[r] = nil

	rows, err := rowsNamed(b.cache, r.table, r.name)
	if err != nil {
		return nil
	}

	for _, m := range inOrder(rows) {
		if !tables[r.table].hasIDs || externalIDs(m)[ownerID] != "" {
			b.found[r] = m
			break
		}
	}

	return b.found[r]
}

// operations returns the transaction that makes the current rows equal to the planned ones. It is
// empty without a difference. A key that refers to a row that neither exists nor is inserted is
// left out, and gets its error in errs.
func (b *batch) operations(errs map[plan.Key]error) []ovsdb.Operation {
	targets := b.resolve(errs)

	ops := b.recordOps(targets, errs)
	staleOps, roots := b.staleOps(errs)
	ops = append(ops, staleOps...)

	// Root rows are last, because their operations depend on the rows that the others change.
	changed := changedRows(ops)
	for _, s := range roots {
		ops = append(ops, b.deleteRootOps(s, changed)...)
	}

	return append(ops, b.placeholderOps(ops)...)
}

// recordOps returns the operations for the planned rows: inserts and updates, then additions to
// parents, then removals from parents.
func (b *batch) recordOps(targets map[ref]string, errs map[plan.Key]error) []ovsdb.Operation {
	var ops, removals []ovsdb.Operation

	resolve := func(r ref) string { return targets[r] }
	additions := map[addition][]string{} // UUIDs of rows, by the column that they are added to

	for _, key := range slices.SortedFunc(maps.Keys(b.records), plan.Key.Compare) {
		for _, r := range b.records[key] {
			op, err := b.writeRecord(r, resolve)
			if err != nil {
				errs[key] = err
				continue
			}

			if op != nil {
				ops = append(ops, *op)
			}

			removalsOfRecord := b.removalOps(r, resolve)
			removals = append(removals, removalsOfRecord...)
			b.payForRemovals(r, removalsOfRecord)

			later := laterJoins{key: key, port: r.name}

			for _, p := range r.parents {
				isMember := r.old != nil && b.members.has(p, targets[p.parent], r.uuid)
				if isMember {
					continue
				}

				if b.joinsLater(r, p, targets) {
					later.add(r, p)
					continue
				}

				if b.holdsMembership(r, p, targets[p.parent]) {
					continue
				}

				to := addition{p.parent.table, targets[p.parent], p.column}
				additions[to] = append(additions[to], r.uuid)
			}

			if r.access != nil {
				b.later = append(b.later, later)
			}

			if ports := b.isolate(r); len(ports) > 0 {
				to := addition{r.table, r.uuid, "ports"}
				additions[to] = append(additions[to], ports...)
			}
		}
	}

	return slices.Concat(ops, additionOps(additions), removals)
}

// staleOps returns the operations for stale rows of non-root tables, and for those that keep
// VIPs. It returns the stale rows of root tables separately.
func (b *batch) staleOps(errs map[plan.Key]error) (ops []ovsdb.Operation, roots []staleRow) {
	for _, key := range slices.SortedFunc(maps.Keys(b.records), plan.Key.Compare) {
		for _, s := range b.stale[key] {
			if s.keep != nil {
				op, err := b.keepVIPs(s)
				if err != nil {
					errs[key] = err
				} else if op != nil {
					ops = append(ops, *op)
				}

				continue
			}

			b.writes[s.uuid] = nil
			if b.schema.Tables[s.table].IsRoot {
				roots = append(roots, s)
			} else {
				ops = append(ops, b.deleteOps(s)...)
			}
		}
	}

	return ops, roots
}

// resolve returns the UUID of every referenced row, or the name of a new row in this transaction.
// It drops the keys whose references do not exist, with an error in errs. Other keys may refer to
// rows of a dropped key, so it repeats until no key is dropped.
func (b *batch) resolve(errs map[plan.Key]error) map[ref]string {
	for {
		targets := map[ref]string{}

		for _, records := range b.records {
			for _, r := range records {
				targets[ref{r.table, cmp.Or(r.name, r.id)}] = r.uuid
			}
		}

		dropped := false

		for key, records := range b.records {
			if missing := b.resolveKey(key, records, targets); missing != nil {
				errs[key] = &MissingRowError{missing.table, missing.name}
				delete(b.records, key)
				delete(b.stale, key)

				dropped = true
			}
		}

		if !dropped {
			return targets
		}
	}
}

// resolveKey adds the existing rows that the records of a key refer to, or that must refer to them,
// to targets. It returns the first reference to a row that does not exist, or a column that the
// schema lacks as a ref of "Table.column". It returns nil if all exist. It leaves out port groups that
// do not exist and that only allow traffic, and records them in pending.
func (b *batch) resolveKey(key plan.Key, records []*record, targets map[ref]string) *ref {
	exists := func(t ref) bool {
		if targets[t] == "" {
			if uuid := b.uuidNamed(t); uuid != "" {
				targets[t] = uuid
			}
		}

		return targets[t] != ""
	}

	for _, r := range records {
		b.recordMissing(r, exists)

		r.parents = slices.DeleteFunc(r.parents, func(p membership) bool {
			if exists(p.parent) || !r.mayJoinLater(p) {
				return false
			}

			b.pending[key] = &GroupPendingError{p.parent.name}

			return true
		})

		for _, p := range r.parents {
			if !b.hasColumn(p.parent.table, p.column) {
				return &ref{p.parent.table + "." + p.column, p.parent.name}
			}
		}

		for _, t := range r.targets() {
			if !exists(t) {
				return &t
			}
		}
	}

	return nil
}

// targets returns all rows that the record refers to, or that must refer to it.
func (r *record) targets() []ref {
	var out []ref
	for _, refs := range r.refs {
		out = append(out, refs...)
	}

	for _, p := range r.parents {
		out = append(out, p.parent)
	}

	return out
}

// writeRecord returns the insert or update of the row itself, or nil if it needs no change.
func (b *batch) writeRecord(r *record, resolve func(ref) string) (*ovsdb.Operation, error) {
	m, columns, err := r.desired(b.cache.DatabaseModel(), resolve)
	if err != nil {
		return nil, err
	}

	return b.write(r, m, columns)
}

// write returns the insert or update that makes the columns of the row equal to those of m.
func (b *batch) write(r *record, m model.Model, columns []string) (*ovsdb.Operation, error) {
	row, err := b.difference(r, m, columns)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", r.table, r.id, err)
	}

	switch {
	case r.old == nil:
		return &ovsdb.Operation{Op: ovsdb.OperationInsert, Table: r.table, Row: row, UUIDName: r.uuid}, nil
	case len(row) == 0:
		return nil, nil
	}

	b.writes[r.uuid] = m

	return &ovsdb.Operation{
		Op:    ovsdb.OperationUpdate,
		Table: r.table,
		Where: whereUUID(r.uuid),
		Row:   row,
	}, nil
}

// difference returns the columns of want that differ from the existing row, or from the defaults of
// a new one, with their values in want.
func (b *batch) difference(r *record, want model.Model, columns []string) (ovsdb.Row, error) {
	row := ovsdb.Row{}
	table := b.schema.Table(r.table)

	for _, column := range columns {
		f, _ := fieldOf(want, column)

		schema := table.Column(column)
		if r.old == nil {
			if ovsdb.IsDefaultValue(schema, f.Interface()) {
				continue
			}
		} else if now, _ := fieldOf(r.old, column); sameColumn(now, f) {
			continue
		}

		value, err := ovsdb.NativeToOvs(schema, f.Interface())
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", column, err)
		}

		row[column] = value
	}

	return row, nil
}
