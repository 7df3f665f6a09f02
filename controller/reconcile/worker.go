package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// worker reconciles keys, a batch at a time, in one goroutine that owns the
// allocator and the account of the full sync.
type worker struct {
	*Loop
	term      *term
	allocator *ipam.Allocator
	queue     workqueue.TypedRateLimitingInterface[plan.Key]
	begun     time.Time  // the last batch
	backlog   []plan.Key // of a full sync, to be enqueued when events leave room
	waiting   waiting
	pending   map[plan.Key]struct{} // keys of the full sync that are not done
	syncing   uint64                // the database connection that the full sync is of; 0: none was begun
	synced    uint64                // the database connection whose full sync is done
	heavy     largeKeys
	throttle  throttle
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
		waiting:   newWaiting(),
		pending:   map[plan.Key]struct{}{},
		heavy:     largeKeys{},
		throttle:  newThrottle(),
	}
}

func (w *worker) run(ctx context.Context) error {
	for {
		keys := w.next(ctx)
		if len(keys) == 0 || w.term.Hold(ctx) != nil {
			return nil
		}

		w.pace.note(len(keys)+w.queue.Len()+len(w.backlog), w.begun)

		for i, batch := range w.heavy.batches(keys, w.throttle.limited) {
			if i > 0 && w.term.Hold(ctx) != nil {
				return nil
			}

			w.reconcile(ctx, batch)
		}

		w.publish()
	}
}

// next waits for work and returns up to batchSize keys, or a batch of the full sync. It returns
// none when the queue was shut down. The first key after a pause is returned at once; keys that
// follow soon after it are batched.
func (w *worker) next(ctx context.Context) []plan.Key {
	size := max(batchSize, w.feed())

	k, shutdown := w.queue.Get()
	if shutdown {
		return nil
	}

	if pause := coalesce - time.Since(w.begun); pause > 0 && w.queue.Len() < size-1 {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}

	w.begun = time.Now()

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

// feed enqueues the next batch of the full sync when the queue is empty, so that no event waits
// behind more than one such batch. It returns the number of keys.
func (w *worker) feed() int {
	if w.queue.Len() > 0 {
		return 0
	}

	n := min(len(w.backlog), syncBatch)
	for _, k := range w.backlog[:n] {
		w.queue.Add(k)
	}

	w.backlog = w.backlog[n:]

	return n
}

// work is the outcome of a batch of keys.
type work struct {
	rows       map[plan.Key][]plan.Row
	unserved   map[plan.Key]error  // why the rows leave out a part of the object
	unassigned map[plan.Key]error  // why a pod has no address, and so no rows
	patches    map[plan.Key]*patch // of annotations that the rows need
	after      map[plan.Key]*patch // written after the rows
}

// reconcile makes the rows that each key owns equal to the cluster. A key that fails is queued
// again with backoff; the others are unaffected. A key whose object gets an annotation is not
// planned now: the watch brings the new version and enqueues the key.
func (w *worker) reconcile(ctx context.Context, keys []plan.Key) {
	todo := work{
		rows:       map[plan.Key][]plan.Row{},
		unserved:   map[plan.Key]error{},
		unassigned: map[plan.Key]error{},
		patches:    map[plan.Key]*patch{},
		after:      map[plan.Key]*patch{},
	}

	for _, k := range keys {
		if k == everything() {
			switch err := w.enqueueEverything(); {
			case err == nil, errors.Is(err, nb.ErrNotConnected): // the next connection asks again
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

		w.prepare(k, &todo)
	}

	var (
		patchErrs map[plan.Key]error
		group     errgroup.Group
	)
	group.Go(func() error {
		patchErrs = w.term.patchAll(ctx, todo.patches)
		return nil
	})
	w.commit(ctx, todo)

	_ = group.Wait() // the errors are in patchErrs

	for k := range todo.patches {
		switch err := patchErrs[k]; {
		case err == nil:
			pod := ipam.Pod{Name: k.Namespace + "/" + k.Name, UID: string(todo.patches[k].object.UID)}
			w.allocator.RecordWritten(pod)
			w.settle(k, "patched")
		case errors.Is(err, errConflict):
			w.requeueKey(k)
		default:
			w.fail(k, reasonOf(err), err)
		}
	}

	w.wake(w.waiting.wanting(w.allocator.TakeFreed()))
}

// prepare adds the work for a key to todo. It finishes the key itself if the key has no work,
// cannot be planned, or has to wait.
func (w *worker) prepare(k plan.Key, todo *work) {
	p, err := w.allocate(k)
	if errors.Is(err, ipam.ErrNodeBehind) {
		delete(w.pending, k)
		w.lag.done(k)
		w.settle(k, "ok")

		return
	}

	if err != nil {
		w.counts.allocation(k.Kind, err)

		if k.Kind == plan.KindPod { // its present rows are wrong, or of an earlier pod with its name
			todo.rows[k], todo.unassigned[k] = nil, err
		} else {
			w.fail(k, reasonCannotAllocate, err)
		}

		return
	}

	if p != nil {
		todo.patches[k] = p
		return
	}

	after := leavesByPatch(&w.cluster, k)
	if after == nil { // otherwise the changed annotation enqueues the node again
		after = networkAvailablePatch(&w.cluster, k)
	}

	rows, err := plan.Rows(&w.cluster, k)

	var unserved *plan.Unserved
	if err != nil && !errors.As(err, &unserved) {
		w.fail(k, reasonCannotPlan, err)
		return
	}

	if !w.allocated(rows) {
		w.queue.AddRateLimited(k)
		w.queue.Done(k)

		return
	}

	w.heavy.note(k, rows)

	todo.rows[k] = rows
	if after != nil {
		todo.after[k] = after
	}

	if err != nil {
		todo.unserved[k] = err
	}
}

// commit writes the rows, then the patches that follow them, and settles the keys.
func (w *worker) commit(ctx context.Context, todo work) {
	want := todo.rows
	w.dropChassis(ctx, want)

	if len(want) == 0 {
		return
	}

	var (
		shares  map[string]*share
		allowed map[plan.Key]*nb.Allowance
	)

	if !w.firstSync() {
		for _, k := range w.throttle.hurry(want) {
			w.enqueue(k)
		}

		shares, allowed = w.throttle.shares(want, w.cluster.VIPShare)
	}

	start, before := time.Now(), w.db.Stats().Transactions
	errs := w.db.CommitWithin(ctx, want, allowed)
	w.throttle.spend(want, shares)

	for _, err := range errs {
		if w.term.note(ctx, err) != nil && ctx.Err() != nil {
			return // the term is over, and with it the account of its work
		}
	}

	end, wrote := time.Now(), w.db.Stats().Transactions != before
	w.counts.commit(end.Sub(start))
	maps.DeleteFunc(todo.after, func(k plan.Key, _ *patch) bool {
		_, in := want[k]
		return !in || errs[k] != nil
	})
	maps.Copy(errs, w.term.patchAll(ctx, todo.after))

	for k, rows := range want {
		if err := errs[k]; err != nil {
			w.fail(k, reasonOf(err), err)
			continue
		}

		if since, ok := w.lag.done(k); ok && wrote {
			w.counts.latency(end.Sub(since))
		}

		node := w.release(k, rows)
		if err := todo.unassigned[k]; err != nil {
			w.fail(k, reasonCannotAllocate, err)
		} else if held(allowed[k], k) {
			w.note(k, todo.unserved[k])
			w.postpone(k, w.throttle.until(k.Namespace))
		} else {
			w.done(k, todo.unserved[k])
		}

		w.wake(w.waiting.referring(rows))

		if node {
			w.wake(slices.SortedFunc(maps.Keys(w.waiting.nodes), plan.Key.Compare))
		}
	}
}

func held(a *nb.Allowance, k plan.Key) bool {
	if a == nil {
		return false
	}

	_, in := a.Held[k]

	return in
}

func (w *worker) wake(keys []plan.Key) {
	for _, k := range keys {
		w.queue.Forget(k)
		w.queue.Add(k)
	}
}
