package reconcile

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// worker reconciles keys, a batch at a time, in one goroutine that owns the
// books and the account of the full sync.
type worker struct {
	*Loop
	books   *books
	queue   workqueue.TypedRateLimitingInterface[plan.Key]
	pending map[plan.Key]struct{} // keys of the full sync that are not done
	synced  uint64                // the database connection of the last full sync; 0: none was begun
}

func (w *worker) run(ctx context.Context) error {
	for {
		keys := w.next(ctx)
		if len(keys) == 0 {
			return nil
		}
		w.reconcile(ctx, keys)
		w.publish()
	}
}

// next waits for work and returns up to batchSize keys, none when the queue
// was shut down. It waits a moment for what comes with the first key.
func (w *worker) next(ctx context.Context) []plan.Key {
	k, shutdown := w.queue.Get()
	if shutdown {
		return nil
	}
	if w.queue.Len() < batchSize-1 {
		select {
		case <-ctx.Done():
		case <-time.After(coalesce):
		}
	}
	keys := []plan.Key{k}
	for len(keys) < batchSize && w.queue.Len() > 0 {
		k, shutdown := w.queue.Get()
		if shutdown {
			break
		}
		keys = append(keys, k)
	}
	return keys
}

// reconcile brings the rows owned by each key in line with the cluster. A key
// that fails returns to the queue with backoff; the others are unaffected. A
// key whose object gets an annotation is not planned now: the watch brings the
// new version, and with it the key.
func (w *worker) reconcile(ctx context.Context, keys []plan.Key) {
	want := map[plan.Key][]plan.Row{}
	patches := map[plan.Key]*patch{}
	for _, k := range keys {
		if k == everything() {
			w.finish(k, w.enqueueEverything())
			continue
		}
		p, err := w.books.allocate(&w.cluster, k)
		if err != nil {
			w.fail(k, err)
			continue
		}
		if p != nil {
			patches[k] = p
			continue
		}
		rows, err := plan.Rows(&w.cluster, k)
		if err != nil {
			w.report(k, "CannotPlan", err)
			w.fail(k, err)
			continue
		}
		want[k] = rows
	}
	patchErrs := map[plan.Key]error{}
	var group errgroup.Group
	group.Go(func() error {
		patchErrs = w.patchAll(ctx, patches)
		return nil
	})
	w.commit(ctx, want)
	_ = group.Wait() // the errors are in patchErrs
	for k := range patches {
		if err := patchErrs[k]; err != nil {
			w.fail(k, err)
		} else {
			w.settle(k, "patched")
		}
	}
}

func (w *worker) commit(ctx context.Context, want map[plan.Key][]plan.Row) {
	if len(want) == 0 {
		return
	}
	start := time.Now()
	errs := w.db.Commit(ctx, want)
	w.counts.commit(time.Since(start))
	for k := range want {
		if err := errs[k]; err != nil {
			w.fail(k, err)
			continue
		}
		w.books.release(&w.cluster, k)
		w.finish(k, nil)
	}
}

// enqueueEverything enqueues all objects and all owners in the database.
func (w *worker) enqueueEverything() error {
	generation := w.db.Generation() // before the owners are read: a later connection asks again
	owners, unknown, err := w.db.Owners()
	if err != nil {
		return err
	}
	for _, owner := range unknown {
		w.log.Warn("row in northbound database has an owner of no known kind", "owner", owner)
	}
	w.synced = generation
	clear(w.pending)
	for _, k := range append(w.cluster.Keys(), owners...) {
		w.pending[k] = struct{}{}
		w.queue.Forget(k)
		w.queue.Add(k)
	}
	w.log.Info("full sync", "owners", len(w.pending))
	return nil
}

// finish ends the work on a key, for now.
func (w *worker) finish(k plan.Key, err error) {
	if err != nil {
		w.fail(k, err)
		return
	}
	delete(w.pending, k)
	w.settle(k, "ok")
}

func (w *worker) settle(k plan.Key, result string) {
	w.counts.key(k.Kind, result)
	w.queue.Forget(k)
	w.queue.Done(k)
}

// fail returns a key to the queue with backoff. What is wrong with the key
// itself does not keep the replica from being ready.
func (w *worker) fail(k plan.Key, err error) {
	if !transient(err) {
		delete(w.pending, k)
	}
	if errors.Is(err, ipam.ErrExhausted) || errors.Is(err, ipam.ErrTaken) {
		w.report(k, "CannotAllocate", err)
	}
	w.log.Warn("reconcile failed", "owner", k.String(), "err", err)
	w.counts.key(k.Kind, "error")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

func (w *worker) publish() {
	pending, nodes, pods := len(w.pending), w.books.nodes.Len(), w.books.pods.Len()
	if w.synced == 0 {
		pending = -1
	}
	var done bool
	w.status.set(func(s *status) {
		done = pending == 0 && s.pending != 0
		s.synced, s.pending, s.nodes, s.pods = w.synced, pending, nodes, pods
	})
	if done {
		w.log.Info("database equals the cluster")
	}
}
