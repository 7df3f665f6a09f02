package reconcile

import (
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// enqueueEverything begins a full sync of all objects, all owners in the database, all objects with
// an allocation and all that wait for a retry. Objects may have been deleted while nothing could be
// written.
func (w *worker) enqueueEverything() error {
	generation := w.db.Generation() // before the owners are read: a later connection asks again

	owners, unknown, err := w.db.Owners()
	if err != nil {
		return err
	}

	for _, owner := range unknown {
		w.log.Warn("row in northbound database has an owner of no known kind", "owner", owner)
	}

	w.syncing = generation
	clear(w.pending)

	w.backlog = nil
	for _, k := range slices.Concat(w.cluster.Keys(), owners, w.allocatedTo(), w.failures.owners()) {
		if _, twice := w.pending[k]; !twice {
			w.pending[k] = struct{}{}
			w.backlog = append(w.backlog, k)
			w.queue.Forget(k)
		}
	}

	w.log.Info("full sync", "owners", len(w.pending))

	return nil
}

// done ends the work on a key: the database holds its rows. Parts of the object that could not be
// served become an Event. They are tried again only when something changes.
func (w *worker) done(k plan.Key, unserved error) {
	w.note(k, unserved)
	w.settle(k, "ok")
}

// postpone queues a key again whose namespace has used up its share of changes (throttle). The key
// does not count as waiting: the database follows the cluster as fast as it may.
func (w *worker) postpone(k plan.Key, wait time.Duration) {
	delete(w.pending, k)
	w.lag.done(k)
	w.settle(k, "postponed")
	w.queue.AddAfter(k, wait)
}

// note records which parts of the object could not be served.
func (w *worker) note(k plan.Key, unserved error) {
	delete(w.pending, k)
	w.waiting.forget(k)

	if unserved != nil {
		if w.failures.set(k, unserved.Error(), time.Now()) {
			w.log.Warn("not served", "owner", k.String(), "error", unserved)
			w.report(k, reasonNotServed, unserved)
		}
	} else if w.failures.clear(k) {
		w.log.Info("reconciled again", "owner", k.String())
	}
}

func (w *worker) settle(k plan.Key, result string) {
	w.counts.key(k.Kind, result)
	w.queue.Forget(k)
	w.queue.Done(k)
}

// requeueKey queues a key once more whose object another client changed while it was annotated.
func (w *worker) requeueKey(k plan.Key) {
	w.counts.key(k.Kind, "conflict")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

// fail queues a key again with backoff. An error of the key itself does not affect the replica's
// readiness. It becomes an Event with that reason, unless the reason is empty.
func (w *worker) fail(k plan.Key, reason string, err error) {
	if !transient(err) {
		delete(w.pending, k)
		w.lag.done(k)
	}

	w.waiting.note(k, err)

	switch {
	case k == everything():
		w.log.Warn("full sync failed", "error", err)
	case w.failures.set(k, err.Error(), time.Now()):
		w.log.Warn("reconcile failed", "owner", k.String(), "error", err)

		if reason != "" {
			w.report(k, reason, err)
		}
	}

	w.counts.key(k.Kind, "error")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

// firstSync reports whether the full sync of this connection to the database is under way.
func (w *worker) firstSync() bool { return w.synced != w.syncing || w.syncing == 0 }

// publish updates what Ready and the metrics read.
func (w *worker) publish() {
	done := false
	if w.syncing != 0 && len(w.pending) == 0 {
		done = w.synced != w.syncing
		w.synced = w.syncing
	}

	begun, pending := w.syncing != 0, len(w.pending)
	w.status.set(func(s *status) { s.begun, s.synced, s.pending = begun, w.synced, pending })

	if done {
		w.log.Info("database equals the cluster")
	}
}
