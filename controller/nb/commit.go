package nb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// Commit makes each key own exactly the given rows, in one transaction. It returns the error of
// each key that failed. A key whose rows refer to a row that does not exist fails alone. An error of
// type GroupPendingError is of a key that is written. If the
// database refuses the transaction, Commit halves the batch until it finds the cause, so one bad
// key does not stop the others. It writes nothing if there is no difference.
//
// On return the cache holds the written rows. After Claim, every transaction is conditional on the
// term. A transaction of an earlier term fails as a whole with ErrFenced.
func (d *DB) Commit(ctx context.Context, want map[plan.Key][]plan.Row) map[plan.Key]error {
	return d.CommitWithin(ctx, want, nil)
}

// CommitWithin is Commit that changes no more load balancers and port groups than the allowances of
// their owners permit. It spends the allowances, and records in them what it has left out. Owners
// may share an allowance. Owners without one are not limited. If allowed is not nil, ports join only
// some port groups at once, and the others by CommitAndJoin.
func (d *DB) CommitWithin(
	ctx context.Context,
	want map[plan.Key][]plan.Row,
	allowed map[plan.Key]*Allowance,
) map[plan.Key]error {
	errs, _, _ := d.commitWith(ctx, want, allowed, 0, 0)
	return errs
}

// commitWith commits the rows, together with the joins of about so many groups and ports. Its results
// are those of CommitAndJoin.
func (d *DB) commitWith(
	ctx context.Context,
	want map[plan.Key][]plan.Row,
	allowed map[plan.Key]*Allowance,
	groups, ports int,
) (errs map[plan.Key]error, again []plan.Key, err error) {
	errs = map[plan.Key]error{}
	keys := slices.SortedFunc(maps.Keys(want), plan.Key.Compare)

	conn, err := d.client()
	if err != nil {
		for _, k := range keys {
			errs[k] = err
		}

		return errs, nil, err
	}

	d.committing.Lock()
	defer d.committing.Unlock()

	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()

	var joins []join
	if groups > 0 {
		joins = d.joins.take(groups, ports)
	}

	if !d.commit(ctx, conn, keys, want, allowed, joins, errs) && len(joins) > 0 {
		again, err = d.join(ctx, conn, joins)
		return errs, again, err
	}

	for _, join := range joins {
		d.joins.done(join)
	}

	return errs, nil, nil
}

// commit commits some of the keys in one transaction, and adds their errors to errs. If the
// database refuses the transaction, commit calls itself with each half of the keys. It reports whether
// the ports of the joins have joined their groups, which it tries only in the first transaction. The
// caller holds committing.
func (d *DB) commit(
	ctx context.Context,
	conn client.Client,
	keys []plan.Key,
	want map[plan.Key][]plan.Row,
	allowed map[plan.Key]*Allowance,
	joins []join,
	errs map[plan.Key]error,
) (joined bool) {
	b := newBatch(conn, &d.members, allowed)
	b.isolations = &d.isolations
	allowances := copyAllowances(allowed, keys)

	var planned []plan.Key // those without an error so far

	for _, k := range keys {
		if err := b.add(k, d.supportedRows(want[k])); err != nil {
			errs[k] = err
			continue
		}

		planned = append(planned, k)
	}

	if b.cache == nil {
		return false // the keys have their errors
	}

	ops := b.operations(errs)
	planned = slices.DeleteFunc(planned, func(k plan.Key) bool { return errs[k] != nil })

	ops = append(ops, b.joinOps(joins)...)

	if len(ops) == 0 {
		b.finish(&d.joins, errs)
		return true
	}

	if d.changed != nil {
		d.echoes.expect(b.writes)
	}

	err := d.transact(ctx, conn, ops)
	if err == nil {
		b.finish(&d.joins, errs)
		return true
	}

	d.echoes.forget(b.writes)

	for a, original := range allowances {
		*a = original // nothing was spent
	}

	var refused *refusedError
	if len(planned) == 1 || !errors.As(err, &refused) {
		for _, k := range planned {
			errs[k] = err
		}

		return false
	}

	half := len(planned) / 2
	d.commit(ctx, conn, planned[:half], want, allowed, nil, errs)
	d.commit(ctx, conn, planned[half:], want, allowed, nil, errs)

	return false
}

// refusedError means that the database rejected a transaction, as opposed to a missing reply.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

// transact sends one transaction, conditional on the claimed term, and counts it.
func (d *DB) transact(ctx context.Context, conn client.Client, ops []ovsdb.Operation) error {
	wait := d.termWait()
	results, err := send(ctx, conn, slices.Concat(wait, ops)...)
	d.noteWrite(err)

	if err == nil {
		d.members.touchWritten(ops, results[len(wait):])
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

// termWait returns the first operation of a transaction: the wait for the claimed term, if there
// is one.
func (d *DB) termWait() []ovsdb.Operation {
	if term, ok := d.claimed(); ok {
		return []ovsdb.Operation{term.waitOp()}
	}

	return nil
}

// Owners returns the keys of all owners of rows in the database, sorted, and the values of
// external_ids:ovn-ebpf.io/owner that are not valid keys.
func (d *DB) Owners() ([]plan.Key, []string, error) {
	conn, err := d.client()
	if err != nil {
		return nil, nil, err
	}

	d.committing.Lock() // members.learn changes what commits use
	defer d.committing.Unlock()

	tablesOf := map[string]map[string]bool{} // tables by owner

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
				if tablesOf[owner] == nil {
					tablesOf[owner] = map[string]bool{}
				}

				tablesOf[owner][name] = true
			}
		}
	}

	d.members.learn(cache, countUsage(tablesOf))

	var (
		keys    []plan.Key
		unknown []string
	)

	for _, s := range slices.Sorted(maps.Keys(tablesOf)) {
		if k, err := plan.ParseKey(s); err == nil {
			keys = append(keys, k)
		} else {
			unknown = append(unknown, s)
		}
	}

	slices.SortFunc(keys, plan.Key.Compare)

	return keys, unknown, nil
}

// HasRows reports whether the database has rows of the owner. Without a connection, it reports true.
func (d *DB) HasRows(key plan.Key) bool {
	conn, err := d.client()
	if err != nil {
		return true
	}

	d.committing.Lock()
	defer d.committing.Unlock()

	b := newBatch(conn, &d.members, nil)
	if b.cache == nil {
		return true
	}

	have, err := b.owned(key)

	return err != nil || len(have) > 0
}

// MissingRowError is the error of a key whose rows refer to a row that is not written yet: the row
// of the table with that plan.Row ID.
type MissingRowError struct{ Table, ID string }

func (e *MissingRowError) Error() string {
	return fmt.Sprintf("refer to %s %q: no such row", e.Table, e.ID)
}

// GroupPendingError is the error of a key whose rows are written, except that a port is not in a port
// group whose row is not written yet. The group only allows traffic, so the port has less access
// than it should.
type GroupPendingError struct{ Group string }

func (e *GroupPendingError) Error() string {
	return fmt.Sprintf("join port group %q: not written yet", e.Group)
}

// finish records the groups that ports must join later, and those that will isolate them, after the
// batch was written. It adds the errors of the keys whose ports have not joined all port groups
// because these do not exist.
func (b *batch) finish(j *joins, errs map[plan.Key]error) {
	for _, done := range b.isolated {
		b.isolations.done(done)
	}

	for _, stale := range b.stale {
		for _, s := range stale {
			if s.table == nbmodel.LogicalSwitchPortTable {
				j.remove(nameOf(s.row))
				b.isolations.remove(nameOf(s.row))
			}
		}
	}

	for _, m := range b.missing {
		b.isolations.set(*m)
	}

	for _, l := range b.later {
		if errs[l.key] == nil {
			j.set(l)
		}
	}

	for k, err := range b.pending {
		if errs[k] == nil {
			errs[k] = err
		}
	}
}

// Stats counts the writes since the start.
type Stats struct {
	Transactions uint64            // sent, including failed ones
	Failed       uint64            // transactions that were refused, or got no reply
	Operations   map[string]uint64 // in the others, by kind: "insert", "update", "mutate", "delete"
}

// stats are Stats for concurrent use.
type stats struct {
	mu    sync.Mutex // guards total
	total Stats
}

func newStats() *stats { return &stats{total: Stats{Operations: map[string]uint64{}}} }

func (s *stats) count(ops map[string]uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.total.Transactions++
	if err != nil {
		s.total.Failed++
		return
	}

	for op, n := range ops {
		s.total.Operations[op] += n
	}
}

// Stats returns the counts so far.
func (d *DB) Stats() Stats {
	d.stats.mu.Lock()
	defer d.stats.mu.Unlock()

	out := d.stats.total
	out.Operations = maps.Clone(out.Operations)

	return out
}
