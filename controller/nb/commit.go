package nb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Commit makes each key own exactly the rows given, in one transaction, and
// returns the error of each key that it could not do this for. A key whose
// rows refer to a row that does not exist fails alone; when the database
// refuses the transaction, the batch is halved until the culprit is found, so
// that one bad key does not stop the others. Nothing is written when nothing
// differs. On return the cache holds what was written. After Claim every transaction
// waits for the term; one of a term that is over fails with ErrFenced, as a whole.
func (d *DB) Commit(ctx context.Context, want map[plan.Key][]plan.Row) map[plan.Key]error {
	errs := map[plan.Key]error{}
	keys := slices.SortedFunc(maps.Keys(want), plan.Key.Compare)
	conn, err := d.client()
	if err != nil {
		for _, k := range keys {
			errs[k] = err
		}
		return errs
	}
	d.committing.Lock()
	defer d.committing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	d.commit(ctx, conn, keys, want, errs)
	return errs
}

func (d *DB) commit(ctx context.Context, conn client.Client, keys []plan.Key, want map[plan.Key][]plan.Row, errs map[plan.Key]error) {
	b := newBatch(conn, &d.members)
	var planned []plan.Key
	for _, k := range keys {
		if err := b.add(k, want[k]); err != nil {
			errs[k] = err
			continue
		}
		planned = append(planned, k)
	}
	ops := b.operations(errs)
	planned = slices.DeleteFunc(planned, func(k plan.Key) bool { return errs[k] != nil })
	if len(ops) == 0 {
		return
	}
	if d.changed != nil {
		d.echoes.expect(b.writes)
	}
	err := d.transact(ctx, conn, ops)
	if err == nil {
		return
	}
	d.echoes.forget(b.writes)
	var refused *refusedError
	if len(planned) == 1 || !errors.As(err, &refused) {
		for _, k := range planned {
			errs[k] = err
		}
		return
	}
	half := len(planned) / 2
	d.commit(ctx, conn, planned[:half], want, errs)
	d.commit(ctx, conn, planned[half:], want, errs)
}

// refusedError is the database's answer that a transaction cannot be done, as
// opposed to no answer.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

func (d *DB) transact(ctx context.Context, conn client.Client, ops []ovsdb.Operation) error {
	head := d.head()
	results, err := send(ctx, conn, slices.Concat(head, ops)...)
	if err == nil {
		d.members.wrote(ops, results[len(head):])
	}
	counts := map[string]uint64{}
	for _, op := range ops {
		counts[op.Op]++
	}
	d.stats.count(counts, err)
	if err != nil {
		return fmt.Errorf("write to northbound database: %w", err)
	}
	return nil
}

// head is what a transaction begins with: the wait for the claimed term, if one was claimed.
func (d *DB) head() []ovsdb.Operation {
	if term, ok := d.claimed(); ok {
		return []ovsdb.Operation{term.wait()}
	}
	return nil
}

func refusal(err error, details []ovsdb.OperationError) error {
	for _, d := range details {
		err = fmt.Errorf("%w: %w", err, d)
	}
	return err
}

// Owners returns the keys of all owners of rows in the database, sorted, and
// the values of external_ids:ovn-ebpf.io/owner that are no keys.
func (d *DB) Owners() ([]plan.Key, []string, error) {
	conn, err := d.client()
	if err != nil {
		return nil, nil, err
	}
	d.committing.Lock() // what is learned here is for the next commit
	defer d.committing.Unlock()
	seen := map[string]map[string]bool{} // tables by owner
	cache := conn.Cache()
	if cache == nil {
		return nil, nil, ErrNotConnected
	}
	for name := range models() {
		table := cache.Table(name)
		if table == nil {
			continue
		}
		for _, row := range table.RowsShallow() {
			if owner := ownerOf(name, row); owner != "" && owner != termOwner {
				if seen[owner] == nil {
					seen[owner] = map[string]bool{}
				}
				seen[owner][name] = true
			}
		}
	}
	d.members.learn(cache, countUsage(seen))
	var keys []plan.Key
	var unknown []string
	for _, s := range slices.Sorted(maps.Keys(seen)) {
		if k, err := plan.ParseKey(s); err == nil {
			keys = append(keys, k)
		} else {
			unknown = append(unknown, s)
		}
	}
	slices.SortFunc(keys, plan.Key.Compare)
	return keys, unknown, nil
}
