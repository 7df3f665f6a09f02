package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
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
	}
}

// run reconciles keys until the queue is shut down or the term is over.
func (w *worker) run(ctx context.Context) error {
	for {
		keys := w.next(ctx)
		if len(keys) == 0 || w.term.Hold(ctx) != nil {
			return nil
		}

		w.pace.update(len(keys)+w.queue.Len()+len(w.backlog), w.batchBegun)

		for i, batch := range w.heavy.batches(keys, w.throttle.isLimited) {
			if i > 0 && w.term.Hold(ctx) != nil {
				return nil
			}

			w.reconcile(ctx, batch)
		}

		w.publish()
	}
}

// next waits for work and returns up to batchSize keys, or a batch of the full sync. It returns
// none when the queue was shut down. The first key after a pause is returned at once. Keys that
// follow within coalesce after that are returned together.
func (w *worker) next(ctx context.Context) []plan.Key {
	size := max(batchSize, w.feedBacklog())

	k, shutdown := w.queue.Get()
	if shutdown {
		return nil
	}

	if pause := coalesce - time.Since(w.batchBegun); pause > 0 && w.queue.Len() < size-1 {
		loop.Pause(ctx, pause)
	}

	w.batchBegun = time.Now()

	keys := []plan.Key{k}
	for len(keys) < size && w.queue.Len() > 0 {
		k, shutdown := w.queue.Get()
		if shutdown {
			break
		}

		keys = append(keys, k)
	}

	for _, k := range keys {
		w.lag.take(k)
	}

	return keys
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

// reconcile makes the rows that each key owns equal to the cluster. A key that fails is queued
// again with backoff; the others are unaffected. If the annotations of a key's object do not have
// its allocation, they are written and the key gets no rows now: the watch brings the new version
// and enqueues the key.
func (w *worker) reconcile(ctx context.Context, keys []plan.Key) {
	b := newBatch()

	for _, k := range keys {
		if k == fullSyncKey() {
			switch err := w.beginFullSync(); {
			case err == nil, errors.Is(err, nb.ErrNotConnected): // the next connection enqueues it again
				w.done(k, nil)
			default:
				w.fail(k, "", err)
			}

			continue
		}

		if wait := w.throttle.wait(k); wait > 0 && !w.firstSync() {
			w.postpone(k, wait)
			continue
		}

		w.prepare(k, &b)
	}

	// Write the annotations and the rows, which belong to different keys, in parallel.
	var (
		patchErrs map[plan.Key]error
		group     sync.WaitGroup
	)

	group.Go(func() { patchErrs = w.term.patchAll(ctx, b.allocations) })
	w.commit(ctx, b)
	group.Wait()

	for k, p := range b.allocations {
		switch err := patchErrs[k]; {
		case err == nil:
			pod := ipam.Pod{Name: k.Namespace + "/" + k.Name, UID: string(p.object.UID)}
			w.allocator.RecordWritten(pod)
			w.finish(k, "patched")
		case errors.Is(err, errConflict):
			w.requeueKey(k)
		default:
			w.fail(k, reasonOf(err), err)
		}
	}

	w.wake(w.waitlist.wanting(w.allocator.TakeFreed()))
}

// prepare adds what must be written for a key to the batch. It finishes the key itself if nothing
// has to be written, or if the key cannot be planned or has to wait.
func (w *worker) prepare(k plan.Key, b *batch) {
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

	if len(b.rows) == 0 {
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

	errs := w.db.CommitWithin(ctx, b.rows, byOwner)
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
	maps.Copy(errs, w.term.patchAll(ctx, b.later))

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
