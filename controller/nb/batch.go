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

// batch is the difference between what some owners have and what they shall have.
type batch struct {
	cache   *cache.TableCache
	schema  ovsdb.DatabaseSchema
	records map[plan.Key][]*record
	stale   map[plan.Key][]staleRow
	found   map[ref]model.Model // rows looked up by name; nil: looked up, not there
	serial  int
}

// staleRow is a row that its owner shall no longer have.
type staleRow struct{ table, uuid string }

func newBatch(conn client.Client) *batch {
	return &batch{
		cache: conn.Cache(), schema: conn.Schema(), records: map[plan.Key][]*record{},
		stale: map[plan.Key][]staleRow{}, found: map[ref]model.Model{},
	}
}

// add compares one owner: which planned rows exist, which are new, which of
// the existing are stale.
func (b *batch) add(key plan.Key, rows []plan.Row) error {
	if b.cache == nil {
		return ErrNotConnected
	}
	have, err := b.owned(key)
	if err != nil {
		return err
	}
	var records []*record
	for _, row := range rows {
		_, hasIDs := b.schema.Tables[row.Table()].Columns["external_ids"]
		r := newRecord(key, row, hasIDs)
		identity := ref{r.table, r.id}
		if !hasIDs {
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
	b.records[key] = records
	for identity, rest := range have {
		for _, m := range rest {
			b.stale[key] = append(b.stale[key], staleRow{identity.table, uuidOf(m)})
		}
	}
	slices.SortFunc(b.stale[key], func(x, y staleRow) int {
		return cmp.Or(cmp.Compare(x.table, y.table), cmp.Compare(x.uuid, y.uuid))
	})
	return nil
}

// owned returns the rows that carry the owner's key, by table and ID.
func (b *batch) owned(key plan.Key) (map[ref][]model.Model, error) {
	have := map[ref][]model.Model{}
	mine, err := ovsdb.NewOvsMap(map[string]string{ownerID: key.String()})
	if err != nil {
		return nil, err
	}
	for _, t := range plan.Types() {
		if _, hasIDs := b.schema.Tables[t.Table()].Columns["external_ids"]; !hasIDs {
			continue
		}
		rows, err := rowsWhere(b.cache, t.Table(), ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, mine))
		if err != nil {
			return nil, err
		}
		for _, uuid := range slices.Sorted(maps.Keys(rows)) {
			identity := ref{t.Table(), cmp.Or(externalIDs(rows[uuid])[rowID], nameOf(rows[uuid]))}
			have[identity] = append(have[identity], rows[uuid])
		}
	}
	return have, nil
}

// lookup returns the row of that name that is ours, or, in tables without
// external_ids, anyone's. It returns nil if there is none.
func (b *batch) lookup(r ref) model.Model {
	if m, ok := b.found[r]; ok {
		return m
	}
	b.found[r] = nil
	rows, err := rowsWhere(b.cache, r.table, ovsdb.NewCondition("name", ovsdb.ConditionEqual, r.name))
	if err != nil {
		return nil
	}
	for _, uuid := range slices.Sorted(maps.Keys(rows)) {
		_, hasIDs := b.schema.Tables[r.table].Columns["external_ids"]
		if !hasIDs || externalIDs(rows[uuid])[ownerID] != "" {
			b.found[r] = rows[uuid]
			break
		}
	}
	return b.found[r]
}

// operations returns the transaction that makes the difference, empty if there
// is none. Keys that refer to what neither exists nor is inserted are left out
// and get their error in errs.
func (b *batch) operations(errs map[plan.Key]error) []ovsdb.Operation {
	targets := b.resolve(errs)
	var ops []ovsdb.Operation
	additions := map[addition][]string{}
	for _, key := range slices.SortedFunc(maps.Keys(b.records), plan.Key.Compare) {
		for _, r := range b.records[key] {
			op, err := b.writeRecord(r, func(t ref) string { return targets[t] })
			if err != nil {
				errs[key] = err
				continue
			}
			if op != nil {
				ops = append(ops, *op)
			}
			for _, p := range r.parents {
				if !b.isMember(r, p) {
					at := addition{p.parent.table, targets[p.parent], p.column}
					additions[at] = append(additions[at], r.uuid)
				}
			}
		}
	}
	ops = append(ops, additionOps(additions)...)
	for _, key := range slices.SortedFunc(maps.Keys(b.records), plan.Key.Compare) {
		for _, s := range b.stale[key] {
			ops = append(ops, b.deleteOps(s)...)
		}
	}
	return ops
}

// resolve finds the UUID, or the name given in this transaction, of every row
// referred to, and drops the keys that refer to nothing; that may take away
// what others refer to, so it goes on until nothing changes.
func (b *batch) resolve(errs map[plan.Key]error) map[ref]string {
	for {
		targets := map[ref]string{}
		for _, records := range b.records {
			for _, r := range records {
				if r.name != "" {
					targets[ref{r.table, r.name}] = r.uuid
				}
			}
		}
		dropped := false
		for key, records := range b.records {
			if missing := b.resolveKey(records, targets); missing != nil {
				errs[key] = fmt.Errorf("refer to %s: no such row", missing)
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

func (b *batch) resolveKey(records []*record, targets map[ref]string) *ref {
	for _, r := range records {
		for _, t := range r.targets() {
			if targets[t] != "" {
				continue
			}
			m := b.lookup(t)
			if m == nil {
				return &t
			}
			targets[t] = uuidOf(m)
		}
	}
	return nil
}

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

// writeRecord returns the insert or update of the row itself, nil if it is right.
func (b *batch) writeRecord(r *record, resolve func(ref) string) (*ovsdb.Operation, error) {
	db := b.cache.DatabaseModel()
	m, fields, err := r.desired(db, resolve)
	if err != nil {
		return nil, err
	}
	info, err := db.NewModelInfo(m)
	if err != nil {
		return nil, err
	}
	if r.old == nil {
		row, err := b.cache.Mapper().NewRow(info)
		if err != nil {
			return nil, fmt.Errorf("encode %s %q: %w", r.table, r.id, err)
		}
		delete(row, "_uuid")
		return &ovsdb.Operation{Op: ovsdb.OperationInsert, Table: r.table, Row: row, UUIDName: r.uuid}, nil
	}
	var changed []any
	for column, field := range fields {
		now, _ := fieldOf(r.old, column)
		want, _ := fieldOf(m, column)
		if !sameColumn(now, want) {
			changed = append(changed, field)
		}
	}
	if len(changed) == 0 {
		return nil, nil
	}
	row, err := b.cache.Mapper().NewRow(info, changed...)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", r.table, r.id, err)
	}
	return &ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: r.table, Where: whereUUID(r.uuid), Row: row}, nil
}

// isMember says whether the parent's column already refers to the row.
func (b *batch) isMember(r *record, p membership) bool {
	parent := b.lookup(p.parent)
	if parent == nil || r.old == nil {
		return false
	}
	f, ok := fieldOf(parent, p.column)
	if !ok {
		return false
	}
	members, _ := f.Interface().([]string)
	return slices.Contains(members, r.uuid)
}
