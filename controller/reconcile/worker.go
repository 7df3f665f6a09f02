package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// prepareFor is how long keys are added to a batch, except in the first full sync. The time that a
	// batch takes is a part of the time that a new pod waits.
	prepareFor = 25 * time.Millisecond
	// slowFor is how long slow keys are reconciled before the next batch.
	slowFor = 25 * time.Millisecond
)

// worker reconciles keys, a batch at a time, in one goroutine. Only this goroutine uses the fields.
// A worker lives for one term.
type worker struct {
	*Loop
	term       *term
	allocator  *ipam.Allocator
	queue      workqueue.TypedRateLimitingInterface[plan.Key]
	batchBegun time.Time // when the last batch was taken from the queue
	waitlist   waitlist
	heavy      heavyKeys
	throttle   throttle
	slow       []plan.Key // heavy or limited keys that were taken, and are reconciled one after another
	writes     *allocationWrites
	regroups   regroups
	tidies     bool // a full sync is running that is not the first of its connection: see removePlaceholders

	// A full sync belongs to a connection to the database, given as nb.DB.Generation; 0 is none.
	backlog []plan.Key            // its keys that are enqueued when the queue is empty
	pending map[plan.Key]struct{} // its keys that are not done
	syncing uint64                // the connection whose full sync has begun last
	synced  uint64                // the connection whose full sync was done last
}

func newWorker(
	l *Loop,
	t *term,
	a *ipam.Allocator,
	q workqueue.TypedRateLimitingInterface[plan.Key],
) *worker {
	return &worker{
		Loop:      l,
		term:      t,
		allocator: a,
		queue:     q,
		waitlist:  newWaitlist(),
		pending:   map[plan.Key]struct{}{},
		heavy:     heavyKeys{},
		throttle:  newThrottle(),
		regroups:  newRegroups(&l.cluster),
		writes:    &allocationWrites{term: t, finished: func() { q.Add(wakeKey()) }, slots: newSlots()},
	}
}

// run reconciles keys until the queue is shut down or the term is over. In each round, it reconciles a
// batch of keys together, then slow keys one after another, and then some of the policies that the pace
// of regroup permits. So a new key waits for one batch, for slow keys as long as slowFor and the last of
// them take, and at most once per second for policies.
func (w *worker) run(ctx context.Context) error {
	defer w.writes.wait()

	for {
		size := max(batchSize, w.feedBacklog())

		first, shutdown := w.wait(ctx, size)
		if shutdown || w.term.Hold(ctx) != nil {
			return nil
		}

		w.pace.update(len(first)+w.queue.Len()+len(w.slow)+len(w.backlog), w.batchBegun)
		w.finishAllocations() // in each round, because many keys may be before wakeKey in the queue
		w.write(ctx, w.takeBatch(first, size))

		if !w.reconcileSlow(ctx) || !w.regroup(ctx) || !w.removePlaceholders(ctx) {
			return nil
		}

		w.publish()
	}
}

// wait waits for work. It returns the first key, or none if slow keys are left. The first key after a
// pause is returned at once, and later ones coalesce after the last batch. It returns true when the
// queue was shut down.
func (w *worker) wait(ctx context.Context, size int) (first []plan.Key, shutdown bool) {
	if len(w.slow) == 0 {
		k, shutdown := w.queue.Get()
		if shutdown {
			return nil, true
		}

		first = append(first, k)

		if pause := coalesce - time.Since(w.batchBegun); pause > 0 && w.queue.Len() < size-1 {
			loop.Pause(ctx, pause)
		}
	}

	w.batchBegun = time.Now()

	return first, w.queue.ShuttingDown()
}

// takeBatch takes up to size keys, of which the first have been taken already, and prepares them. It
// ends earlier when preparing them has taken prepareFor. Slow keys are left for reconcileSlow, and
// those of policies for regroup. They do not count, so that the other keys do not wait for them.
func (w *worker) takeBatch(taken []plan.Key, size int) batch {
	b := newBatch()
	begun := time.Now()
	left := 0 // for others, or nothing has to be done for them

	w.throttle.adapt()

	for n := 0; n-left < size; n++ {
		if n == len(taken) {
			if w.queue.Len() == 0 || time.Since(begun) > prepareFor && !w.firstSync() {
				break
			}

			k, shutdown := w.queue.Get()
			if shutdown {
				break
			}

			taken = append(taken, k)
		}

		k := taken[n]

		w.lag.take(k)

		switch {
		case k == fullSyncKey():
			w.startFullSync()
		case k == wakeKey():
			w.finishAllocations()
			w.queue.Done(k) // after it: what is written meanwhile enqueues the key again
		case w.isIdleSelector(k):
			w.lag.done(k)
			w.done(k, nil)

			left++
		case w.holdsForRegroup(k):
			w.regroups.hold(k)

			left++
		case w.heavy.has(k) || w.throttle.isLimited(k):
			if w.throttle.isLimited(k) {
				w.lag.hold(k)
			}

			w.slow = append(w.slow, k)
			left++
		default:
			w.prepare(k, &b)
		}
	}

	return b
}

// startFullSync ends the work on fullSyncKey.
func (w *worker) startFullSync() {
	switch err := w.beginFullSync(); {
	case err == nil, errors.Is(err, nb.ErrNotConnected): // the next connection enqueues it again
		w.done(fullSyncKey(), nil)
	default:
		w.fail(fullSyncKey(), "", err)
	}
}

// reconcileSlow reconciles slow keys for slowFor, and at least one. It returns false if the term is
// over.
func (w *worker) reconcileSlow(ctx context.Context) bool {
	for begun := time.Now(); len(w.slow) > 0 && time.Since(begun) < slowFor; {
		if w.term.Hold(ctx) != nil {
			return false
		}

		k := w.slow[0]
		w.slow = w.slow[1:]

		w.lag.release(k)

		b := newBatch()
		w.prepare(k, &b)
		w.write(ctx, b)
	}

	return true
}

// batch is what must be written for a batch of keys. A key has an allocation, or it has rows. A key
// with neither was finished by prepare.
type batch struct {
	allocations map[plan.Key]*patch // annotations that must be written before the key can be planned
	rows        map[plan.Key][]plan.Row
	labels      map[plan.Key]map[string]string // of the pods among them, not newer than the rows
	unserved    map[plan.Key]error             // why the rows leave out a part of the object
	unassigned  map[plan.Key]error             // why a pod has no address, and so no rows
	later       map[plan.Key]*patch            // patches that are written after the key's rows
	joins       bool                           // pods join port groups in the same transaction
}

func newBatch() batch {
	return batch{
		allocations: map[plan.Key]*patch{},
		rows:        map[plan.Key][]plan.Row{},
		labels:      map[plan.Key]map[string]string{},
		unserved:    map[plan.Key]error{},
		unassigned:  map[plan.Key]error{},
		later:       map[plan.Key]*patch{},
	}
}

// write makes the rows that each key of a batch owns equal to the cluster. A key that fails is queued
// again with backoff; the others are unaffected. If the annotations of a key's object do not have
// its allocation, they are written while the worker goes on, and the key gets no rows now: the watch
// brings the new version and enqueues the key.
func (w *worker) write(ctx context.Context, b batch) {
	w.writes.start(ctx, b.allocations)
	w.commit(ctx, b)
	w.wake(w.waitlist.wanting(w.allocator.TakeFreed()))
}

// finishAllocations finishes the keys whose annotations have been written.
func (w *worker) finishAllocations() {
	for _, a := range w.writes.take() {
		switch {
		case a.err == nil:
			pod := ipam.Pod{Name: a.key.Namespace + "/" + a.key.Name, UID: string(a.patch.object.UID)}
			w.allocator.RecordWritten(pod)
			w.finish(a.key, "patched")
		case errors.Is(a.err, errConflict):
			w.requeueKey(a.key)
		default:
			w.fail(a.key, reasonOf(a.err), a.err)
		}
	}
}

// prepare adds what must be written for a key to the batch. It finishes the key itself if nothing
// has to be written, or if the key cannot be planned or has to wait.
func (w *worker) prepare(k plan.Key, b *batch) {
	if wait := w.throttle.wait(k); wait > 0 && !w.firstSync() {
		w.postpone(k, wait)
		return
	}

	allocation, err := w.allocate(k)
	if errors.Is(err, ipam.ErrNodeBehind) {
		// The change of the node's annotation enqueues the pod.
		delete(w.pending, k)
		w.lag.done(k)
		w.finish(k, "ok")

		return
	}

	if err != nil {
		w.counts.countAllocationFailure(k.Kind, err)

		if k.Kind == plan.KindPod {
			// Remove the present rows: they are wrong, or an earlier pod of that name had them.
			b.rows[k] = nil
			b.unassigned[k] = err
		} else {
			w.fail(k, reasonCannotAllocate, err)
		}

		return
	}

	if allocation != nil {
		b.allocations[k] = allocation
		return
	}

	later := leavesByPatch(&w.cluster, k)
	if later == nil { // otherwise the changed annotation enqueues the node again
		later = networkAvailablePatch(&w.cluster, k)
	}

	if k.Kind == plan.KindPod {
		if pod := w.cluster.Pod(k.Namespace, k.Name); pod != nil {
			b.labels[k] = pod.Labels
		}
	}

	// The rows are planned after labels and later were read, so that these are not newer.
	rows, err := plan.Rows(&w.cluster, k)

	var unserved *plan.Unserved
	if err != nil && !errors.As(err, &unserved) {
		w.fail(k, reasonCannotPlan, err)
		return
	}

	if !w.hasAllocatedAddresses(rows) { // an annotation has changed meanwhile
		w.queue.AddRateLimited(k)
		w.queue.Done(k)

		return
	}

	w.heavy.record(k, rows)

	b.rows[k] = rows
	if later != nil {
		b.later[k] = later
	}

	if err != nil {
		b.unserved[k] = err
	}
}

// commit writes the rows, then the later patches, and finishes the keys that have rows.
func (w *worker) commit(ctx context.Context, b batch) {
	w.removeOldChassis(ctx, b.rows)

	if len(b.rows) == 0 && !b.joins {
		return
	}

	var (
		byNamespace map[string]*namespaceAllowance
		byOwner     map[plan.Key]*nb.Allowance
	)

	if !w.firstSync() {
		for _, k := range w.throttle.markUrgent(b.rows) {
			w.enqueue(k)
		}

		byNamespace, byOwner = w.throttle.allowances(b.rows, b.labels, w.cluster.VIPShare)
	}

	begun := time.Now()
	transactions := w.db.Stats().Transactions

	var errs map[plan.Key]error
	if b.joins {
		errs = w.commitAndJoin(ctx, b.rows)
	} else {
		errs = w.db.CommitWithin(ctx, b.rows, byOwner)
	}

	w.throttle.spend(b.rows, byNamespace)

	// If the database has another term, this one is over.
	for _, err := range errs {
		if w.term.loseIfFenced(ctx, err) != nil && ctx.Err() != nil {
			return // the next term begins with all keys
		}
	}

	written := time.Now()
	w.counts.observeCommit(written.Sub(begun))

	hasChanged := w.db.Stats().Transactions != transactions

	// A later patch is written only if the rows of its key were.
	maps.DeleteFunc(b.later, func(k plan.Key, _ *patch) bool {
		_, planned := b.rows[k]
		return !planned || errs[k] != nil
	})
	maps.Copy(errs, w.term.patchAll(ctx, b.later, newSlots())) // does not wait behind allocations

	for k, rows := range b.rows {
		var pending *nb.GroupPendingError

		err := errs[k]
		if err != nil && !errors.As(err, &pending) {
			w.fail(k, reasonOf(err), err)
			continue
		}

		if since, ok := w.lag.done(k); ok && hasChanged {
			w.counts.observeLatency(written.Sub(since))
		}

		held := isHeld(byOwner[k], k)
		w.throttle.recordPod(k, rows, b.labels[k], held)
		w.finishWritten(k, rows, &b, held)

		if pending != nil {
			w.waitlist.record(k, pending) // the group's row wakes the key
		}
	}
}

// finishWritten finishes a key whose rows are in the database, except for load balancers and port
// groups that its namespace's allowance has held. It wakes the owners that waited for these rows,
// or for what the key no longer needs.
func (w *worker) finishWritten(k plan.Key, rows []plan.Row, b *batch, isHeld bool) {
	freedNode := w.release(k, rows)

	if err := b.unassigned[k]; err != nil {
		w.fail(k, reasonCannotAllocate, err)
	} else if isHeld {
		w.recordUnserved(k, b.unserved[k])
		w.postpone(k, w.throttle.namespaceWait(k.Namespace))
	} else {
		w.done(k, b.unserved[k])
	}

	w.wake(w.waitlist.referring(rows))

	if freedNode {
		w.wake(slices.SortedFunc(maps.Keys(w.waitlist.nodes), plan.Key.Compare))
	}
}

// isHeld reports whether the allowance has held load balancers or port groups of the owner.
func isHeld(a *nb.Allowance, k plan.Key) bool {
	if a == nil {
		return false
	}

	_, held := a.Held[k]

	return held
}

// wake queues keys at once, without their backoff.
func (w *worker) wake(keys []plan.Key) {
	for _, k := range keys {
		w.queue.Forget(k)
		w.queue.Add(k)
	}
}
