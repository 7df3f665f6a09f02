package nb

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// This file makes the operations that add rows to parents, remove them, and delete rows. Which
// operations a deletion needs depends on the references to the row (OVSDB, RFC 7047):
//
//   - A row of a root table, such as Load_Balancer, exists until an operation deletes it.
//   - ovsdb-server deletes a row of another table when no strong reference to it is left. For
//     example, Logical_Switch.ports has strong references to ports. So the operations remove the
//     row from its parents.
//   - A weak reference does not keep a row alive. For example, Port_Group.ports has weak references
//     to ports. When a row disappears, ovsdb-server removes the weak references to it. But
//     ovsdb-server 3.1 keeps such a reference forever if the same transaction changes another column
//     of the parent. Where that may happen, the operations remove weak references, too.

// addition is a column of a parent that rows are added to.
type addition struct{ table, uuid, column string }

// additionOps returns the operations that add rows, given by their UUIDs, to columns of parents.
func additionOps(additions map[addition][]string) []ovsdb.Operation {
	compare := func(a, b addition) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.uuid, b.uuid),
			cmp.Compare(a.column, b.column))
	}

	var ops []ovsdb.Operation
	for _, parent := range slices.SortedFunc(maps.Keys(additions), compare) {
		ops = append(ops, ovsdb.Operation{
			Op:    ovsdb.OperationMutate,
			Table: parent.table,
			Where: whereUUID(parent.uuid),
			Mutations: []ovsdb.Mutation{
				*ovsdb.NewMutation(parent.column, ovsdb.MutateOperationInsert, uuidSet(additions[parent]...)),
			},
		})
	}

	return ops
}

// removalOps returns the operations that remove an existing row from parents that the plan no
// longer names, for example a port from a Port_Group. It leaves parents of other clients alone,
// which may refer to our rows, too. It returns nothing for tables with one parent column: there,
// the parent is part of the row's ID, so a row never changes its parent.
func (b *batch) removalOps(r *record, resolve func(ref) string) []ovsdb.Operation {
	paths := tables[r.table].parents
	if r.old == nil || len(paths) < 2 || isPlaceholder(r.table, r.name) { // no plan has the groups of placeholders
		return nil
	}

	var ops []ovsdb.Operation

	for _, path := range paths {
		table, column := splitParent(path)

		planned := map[string]bool{} // a pod may be in thousands of port groups

		for _, p := range r.parents {
			if p.parent.table == table && p.column == column {
				planned[resolve(p.parent)] = true
			}
		}

		for _, parent := range slices.Sorted(slices.Values(b.members.indexOf(path)[r.uuid])) {
			if !planned[parent] && b.members.isOurs(path, parent) {
				ops = append(ops, removal(table, parent, column, r.uuid))
			}
		}
	}

	return ops
}

// removal returns the operation that removes rows from a column of their parent.
func removal(table, parent, column string, uuids ...string) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: table, Where: whereUUID(parent),
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, uuidSet(uuids...))},
	}
}

// deleteOps deletes a row of a non-root table: the operations remove it from all its parents.
func (b *batch) deleteOps(s staleRow) []ovsdb.Operation {
	return b.removals(s, func(string) bool { return true })
}

// deleteRootOps deletes a row of a root table, such as a Load_Balancer. All references to it are
// weak. ovsdb-server removes these, except perhaps in parents that the same transaction changes
// (see above). So the operations remove the row from those parents. changed has the UUIDs of all
// rows that the transaction changes.
func (b *batch) deleteRootOps(s staleRow, changed map[string]bool) []ovsdb.Operation {
	var ops []ovsdb.Operation
	if len(changed) > 0 {
		ops = b.removals(s, func(parent string) bool { return changed[parent] })
	}

	ops = append(ops, b.orphanOps(s)...)

	return append(ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: s.table, Where: whereUUID(s.uuid)})
}

// removals returns the operations that remove a row from the parents for which from returns true.
func (b *batch) removals(s staleRow, from func(parent string) bool) []ovsdb.Operation {
	var ops []ovsdb.Operation

	for _, path := range tables[s.table].parents {
		table, column := splitParent(path)
		for _, parent := range slices.Sorted(slices.Values(b.members.indexOf(path)[s.uuid])) {
			if from(parent) {
				ops = append(ops, removal(table, parent, column, s.uuid))
			}
		}
	}

	return ops
}

// changedRows returns the UUIDs of rows that the operations update or mutate.
func changedRows(ops []ovsdb.Operation) map[string]bool {
	changed := map[string]bool{}

	for _, op := range ops {
		for _, where := range op.Where {
			if uuid, ok := where.Value.(ovsdb.UUID); ok {
				changed[uuid.GoUUID] = true
			}
		}
	}

	return changed
}

// orphanOps handles the children of a row that is deleted:
//
//   - A child to which the row has a strong reference disappears with the row, as the ports of a
//     Logical_Switch do. The operations remove the child from its parents with weak references, here
//     the ports from their Port_Groups.
//   - A child to which the row has a weak reference stays, as the ports of a Port_Group do. It also
//     stays in its other parents.
func (b *batch) orphanOps(s staleRow) []ovsdb.Operation {
	var ops []ovsdb.Operation

	for _, child := range slices.Sorted(maps.Keys(tables)) {
		for _, path := range tables[child].parents {
			table, column := splitParent(path)
			if table != s.table || b.schema.Tables[child].IsRoot || b.isWeakReference(table, column) {
				continue
			}

			for _, uuid := range b.members.children(path, s.uuid) {
				ops = append(ops, b.weakRemovals(child, uuid)...)
			}
		}
	}

	return ops
}

// weakRemovals removes a row of the table child from its parents with weak references.
func (b *batch) weakRemovals(child, uuid string) []ovsdb.Operation {
	var ops []ovsdb.Operation

	for _, path := range tables[child].parents {
		table, column := splitParent(path)
		if !b.isWeakReference(table, column) {
			continue
		}

		for _, parent := range slices.Sorted(slices.Values(b.members.indexOf(path)[uuid])) {
			ops = append(ops, removal(table, parent, column, uuid))
		}
	}

	return ops
}

// isWeakReference reports whether the column's references are weak: they do not keep a row alive.
func (b *batch) isWeakReference(table, column string) bool {
	c := b.schema.Table(table).Column(column)
	if c == nil || c.TypeObj == nil || c.TypeObj.Key == nil {
		return false
	}

	refType, err := c.TypeObj.Key.RefType()

	return err == nil && refType == ovsdb.Weak
}

// whereUUID returns the condition that selects the row with the UUID. For a new row, it is the
// row's name in the transaction.
func whereUUID(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

// uuidIn returns the UUID of the row that an operation changes, or "" for an insert.
func uuidIn(op ovsdb.Operation) string {
	if len(op.Where) == 0 {
		return ""
	}

	uuid, _ := op.Where[0].Value.(ovsdb.UUID)

	return uuid.GoUUID
}

// uuidSet returns the set of references to the rows.
func uuidSet(uuids ...string) ovsdb.OvsSet {
	set := ovsdb.OvsSet{}
	for _, u := range uuids {
		set.GoSet = append(set.GoSet, ovsdb.UUID{GoUUID: u})
	}

	return set
}

// splitParent splits a path, Table.column.
func splitParent(path string) (table, column string) {
	table, column, _ = strings.Cut(path, ".")
	return table, column
}
