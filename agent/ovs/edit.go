package ovs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// transactTimeout limits one transaction, including the wait for a reconnection.
const transactTimeout = 20 * time.Second

// edit collects the operations of one transaction, and the first error in making them. commit runs
// them. Callers add only operations for differences from the cache, so an edit may stay empty.
type edit struct {
	c   *Client
	ops []ovsdb.Operation
	err error
}

func (c *Client) edit() *edit { return &edit{c: c} }

// add takes the result of a function of libovsdb that makes operations.
func (e *edit) add(ops []ovsdb.Operation, err error) {
	e.ops = append(e.ops, ops...)
	if e.err == nil {
		e.err = err
	}
}

// create creates the rows. Within the transaction, the UUID field of a new row is a name by which
// other rows refer to it.
func (e *edit) create(rows ...model.Model) {
	for _, row := range rows {
		e.add(e.c.db.Create(row))
	}
}

// update writes these fields of row, if there are any, to the existing row have.
func (e *edit) update(have, row model.Model, fields ...any) {
	if len(fields) > 0 {
		e.add(e.c.db.Where(have).Update(row, fields...))
	}
}

// insert adds references to a field of the row.
func (e *edit) insert(row model.Model, field any, uuids ...string) {
	e.mutate(row, model.Mutation{Field: field, Mutator: ovsdb.MutateOperationInsert, Value: uuids})
}

// remove removes references from a field of the row.
func (e *edit) remove(row model.Model, field any, uuids ...string) {
	e.mutate(row, model.Mutation{Field: field, Mutator: ovsdb.MutateOperationDelete, Value: uuids})
}

// setKeys sets the keys of want in a field of the row, which has the present keys. An empty value
// removes a key. An insert does not replace a key (RFC 7047, 5.1), hence the deletion first.
func (e *edit) setKeys(row model.Model, field *map[string]string, want map[string]string) {
	have := *field

	var stale []string

	insert := map[string]string{}

	for _, k := range slices.Sorted(maps.Keys(want)) {
		old, exists := have[k]
		if exists && (old != want[k] || want[k] == "") {
			stale = append(stale, k)
		}

		if want[k] != "" && (!exists || old != want[k]) {
			insert[k] = want[k]
		}
	}

	var mutations []model.Mutation
	if len(stale) > 0 {
		mutations = append(mutations,
			model.Mutation{Field: field, Mutator: ovsdb.MutateOperationDelete, Value: stale})
	}

	if len(insert) > 0 {
		mutations = append(mutations,
			model.Mutation{Field: field, Mutator: ovsdb.MutateOperationInsert, Value: insert})
	}

	e.mutate(row, mutations...)
}

// mutate adds the mutations of a row, if there are any.
func (e *edit) mutate(row model.Model, mutations ...model.Mutation) {
	if len(mutations) > 0 {
		e.add(e.c.db.Where(row).Mutate(row, mutations...))
	}
}

// commit runs the operations. Without operations it does nothing.
func (e *edit) commit(ctx context.Context) error {
	if e.err == nil && len(e.ops) == 0 {
		return nil
	}

	_, err := e.run(ctx)

	return err
}

// run runs the operations as one transaction and returns their results.
func (e *edit) run(ctx context.Context) ([]ovsdb.OperationResult, error) {
	if e.err != nil {
		return nil, e.err
	}

	ctx, cancel := context.WithTimeout(ctx, transactTimeout)
	defer cancel()

	results, err := e.c.db.Transact(ctx, e.ops...)
	if err != nil {
		return nil, err
	}

	if details, err := ovsdb.CheckOperationResults(results, e.ops); err != nil {
		return nil, fmt.Errorf("%w: %v", err, details)
	}

	return results, nil
}

// rows returns the rows of T's table for which match returns true, from the cache. what names them
// in an error.
func rows[T any](ctx context.Context, c *Client, what string, match func(*T) bool) ([]*T, error) {
	var out []*T
	if err := c.db.WhereCache(match).List(ctx, &out); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}

	return out, nil
}
