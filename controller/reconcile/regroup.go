package reconcile

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// A new or deleted port group, and a changed ACL, makes northd compute all logical flows again. So
// the rows of policies and selectors are written together, and pods join port groups in the same
// transaction, at most once per second. The size of each transaction is bounded, because a pod that
// is created meanwhile waits for it (docs/decisions/0072-pace-of-policies.md).

const (
	// regroupEvery is the time between two transactions, after regroupsAtOnce of them without a pause.
	regroupEvery   = time.Second
	regroupsAtOnce = 4
	// unitsPerRegroup, groupsPerJoin and portsPerJoin bound one transaction. The units are those of
	// nb.DB.PolicyUnits. The last policy may exceed them.
	unitsPerRegroup = 512
	groupsPerJoin   = 96
	portsPerJoin    = 1024
	// regroupFor is how long policies are planned for one transaction.
	regroupFor = 25 * time.Millisecond
	// fewNamespaces is the number of namespaces whose policies may wait at the same time at this
	// pace. If there are more, and pods are created, each transaction counts as regroupsAtOnce of
	// them.
	fewNamespaces = 2
)

// regroups has the policies and selectors that wait for the next transaction. Selectors that isolate new
// pods are first, because these pods wait for them. After that, the namespaces take turns.
type regroups struct {
	held   map[plan.Key]struct{}
	turns  policyTurns // of held, and keys that were taken before their turn
	urgent []plan.Key  // of held, or taken already
	new    []plan.Key  // those that were held since the last round of the worker, and still count as waiting
	pace   *rate.Limiter
}

func newRegroups(c *plan.Cluster) regroups {
	namespaceOf := func(k plan.Key) string {
		if k.Kind == plan.KindSelector {
			return c.SelectorNamespace(k.Name)
		}

		return k.Namespace
	}

	return regroups{
		held:  map[plan.Key]struct{}{},
		turns: newPolicyTurns(namespaceOf),
		pace:  rate.NewLimiter(rate.Every(regroupEvery), regroupsAtOnce),
	}
}

// hold adds a key that was taken from the queue, and that is not finished before its transaction.
func (r *regroups) hold(k plan.Key) {
	r.held[k] = struct{}{}
	r.turns.push(k)
	r.new = append(r.new, k)
}

// hurry gives a key the next turn, if it is held.
func (r *regroups) hurry(k plan.Key) {
	if _, isHeld := r.held[k]; isHeld {
		r.urgent = append(r.urgent, k)
	}
}

// take removes the next key. There must be one.
func (r *regroups) take() plan.Key {
	for {
		var k plan.Key

		if len(r.urgent) > 0 {
			k, r.urgent = r.urgent[0], r.urgent[1:]
		} else {
			k = r.turns.pop()
		}

		if _, isHeld := r.held[k]; isHeld {
			delete(r.held, k)
			return k
		}
	}
}

// wait returns how long the next transaction must wait.
func (r *regroups) wait() time.Duration {
	missing := 1 - r.pace.Tokens()
	return max(0, time.Duration(missing*float64(regroupEvery)))
}

// isContended reports whether policies of more than fewNamespaces wait.
func (r *regroups) isContended() bool { return len(r.turns.keys) > fewNamespaces }

// spend makes the next transactions wait, because one with these units is written. A larger one
// than usual counts several times, up to regroupsAtOnce. If isSlow, it always counts
// regroupsAtOnce times: policies of many namespaces could keep northd busy all the time.
func (r *regroups) spend(units int, isSlow bool) {
	times := max(1, (units+unitsPerRegroup-1)/unitsPerRegroup)
	if isSlow {
		times = regroupsAtOnce
	}

	r.pace.ReserveN(time.Now(), min(times, regroupsAtOnce))
}

// holdsForRegroup reports whether a key is reconciled by regroup. In the first full sync, no key is.
func (w *worker) holdsForRegroup(k plan.Key) bool {
	return (k.Kind == plan.KindPolicy || k.Kind == plan.KindSelector) && !w.firstSync()
}

// isIdleSelector reports whether a key is that of a selector that has no port group, neither planned nor in
// the database. Policies without pods, and those that a budget closes, have such selectors. A tenant can
// change thousands of them per second, and they would be planned in each transaction. In the first full
// sync, no selector waits, so the question is not worth a second plan.
func (w *worker) isIdleSelector(k plan.Key) bool {
	if k.Kind != plan.KindSelector || w.firstSync() {
		return false
	}

	rows, err := plan.Rows(&w.cluster, k)

	return err == nil && len(rows) == 0 && !w.db.HasRows(k)
}

// regroup reconciles some of the policies and selectors, and lets pods join some of the port groups that
// they must still join, if it is time. It returns false if the term is over.
func (w *worker) regroup(ctx context.Context) bool {
	if w.firstSync() { // it has all keys, and the groups that pods must join may be out of date
		w.releaseAll()
		return true
	}

	if len(w.regroups.held) == 0 && w.db.Joining() == 0 {
		return true
	}

	if wait := w.regroups.wait(); wait > 0 {
		w.pauseNew()
		w.queue.AddAfter(wakeKey(), wait)

		return true
	}

	if w.term.Hold(ctx) != nil {
		return false
	}

	joins, isSlow := w.db.Joining() > 0, w.isRegroupSlow()

	b, units := w.takeRegroup()
	if units > 0 || joins { // a full sync of policies that have not changed needs no pace
		w.regroups.spend(units, isSlow)
	}

	w.commit(ctx, b)

	if len(w.regroups.held) > 0 || w.db.Joining() > 0 {
		w.queue.Add(wakeKey())
	}

	return true
}

// isRegroupSlow reports whether policies of many namespaces wait while pods are created.
func (w *worker) isRegroupSlow() bool { return w.regroups.isContended() && !w.throttle.isQuiet }

// takeRegroup plans as many keys as one transaction may have. It returns the number of units, too.
func (w *worker) takeRegroup() (b batch, units int) {
	b = newBatch()
	b.joins = true

	for begun := time.Now(); len(w.regroups.held) > 0 && units < unitsPerRegroup && time.Since(begun) < regroupFor; {
		k := w.regroups.take()

		w.lag.release(k)
		w.prepare(k, &b)

		n := 0 // for a key that cannot be planned
		if rows, isPlanned := b.rows[k]; isPlanned {
			n = w.db.PolicyUnits(k, rows)
		}

		units += n
		w.regroups.turns.charge(k, n)
	}

	w.pauseNew()

	return b, units
}

// pauseNew records that the pace holds the new keys that no transaction has taken. So they do not count
// as waiting.
func (w *worker) pauseNew() {
	for _, k := range w.regroups.new {
		if _, isHeld := w.regroups.held[k]; isHeld {
			w.lag.hold(k)
			delete(w.pending, k)
		}
	}

	w.regroups.new = nil
}

// releaseAll queues all held keys again.
func (w *worker) releaseAll() {
	for len(w.regroups.held) > 0 {
		k := w.regroups.take()

		w.lag.release(k)
		w.queue.Add(k) // before Done, so that the queue has it once
		w.queue.Done(k)
	}

	w.regroups.new = nil
}

// commitAndJoin commits the rows together with joins. It returns the error of each key that failed.
// Owners of ports that could not join are queued again.
func (w *worker) commitAndJoin(ctx context.Context, rows map[plan.Key][]plan.Row) map[plan.Key]error {
	errs, again, err := w.db.CommitAndJoin(ctx, rows, groupsPerJoin, portsPerJoin)
	if w.term.loseIfFenced(ctx, err) != nil && ctx.Err() == nil {
		w.log.Warn("pods cannot join port groups", "pods", len(again), "error", err)
	}

	for _, k := range again {
		w.enqueue(k)
	}

	return errs
}
