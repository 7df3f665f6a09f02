package reconcile

import (
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// beginFullSync begins a full sync: it puts all keys into the backlog. Objects may have been
// deleted while nothing could be written, so owners in the database, objects with an allocation
// and owners that wait for a retry are keys, too.
func (w *worker) beginFullSync() error {
	// Before the owners are read: a later connection begins another full sync.
	generation := w.db.Generation()

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
	for _, k := range slices.Concat(w.cluster.Keys(), owners, w.allocatedKeys(), w.failures.owners()) {
		if _, duplicate := w.pending[k]; !duplicate {
			w.pending[k] = struct{}{}
			w.backlog = append(w.backlog, k)
			w.queue.Forget(k)
		}
	}

	w.log.Info("full sync", "owners", len(w.pending))

	return nil
}

// done ends the work on a key: the database holds its rows. unserved, if not nil, names the parts
// of the object that could not be served, and becomes an Event. They are tried again only when
// something changes.
func (w *worker) done(k plan.Key, unserved error) {
	w.recordUnserved(k, unserved)
	w.finish(k, "ok")
}

// postpone queues a key again whose namespace has used up its share of changes (throttle). The key
// does not count as waiting: the database follows the cluster as fast as it may.
func (w *worker) postpone(k plan.Key, wait time.Duration) {
	delete(w.pending, k)
	w.lag.done(k)
	w.finish(k, "postponed")
	w.queue.AddAfter(k, wait)
}

// recordUnserved records which parts of the object could not be served; nil is none.
func (w *worker) recordUnserved(k plan.Key, unserved error) {
	delete(w.pending, k)
	w.waitlist.forget(k)

	if unserved != nil {
		if w.failures.set(k, unserved.Error(), time.Now()) {
			w.log.Warn("not served", "owner", k.String(), "error", unserved)
			w.report(k, reasonNotServed, unserved)
		}
	} else if w.failures.clear(k) {
		w.log.Info("reconciled again", "owner", k.String())
	}
}

// finish ends the work on a key, and resets its backoff. The result is for metrics.
func (w *worker) finish(k plan.Key, result string) {
	w.counts.countKey(k.Kind, result)
	w.queue.Forget(k)
	w.queue.Done(k)
}

// requeueKey queues a key once more whose object another client changed while it was annotated.
func (w *worker) requeueKey(k plan.Key) {
	w.counts.countKey(k.Kind, "conflict")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

// fail queues a key again with backoff. If the key itself is the cause of the error, the replica
// stays ready. The error becomes an Event with that reason, unless the reason is empty.
func (w *worker) fail(k plan.Key, reason string, err error) {
	if !isTransient(err) {
		delete(w.pending, k)
		w.lag.done(k)
	}

	w.waitlist.record(k, err)

	switch {
	case k == fullSyncKey():
		w.log.Warn("full sync failed", "error", err)
	case w.failures.set(k, err.Error(), time.Now()):
		w.log.Warn("reconcile failed", "owner", k.String(), "error", err)

		if reason != "" {
			w.report(k, reason, err)
		}
	}

	w.counts.countKey(k.Kind, "error")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

// firstSync reports whether the full sync of this connection to the database is under way.
func (w *worker) firstSync() bool { return w.synced != w.syncing || w.syncing == 0 }

// publish updates what Ready and the metrics read.
func (w *worker) publish() {
	isNewlySynced := false
	if w.syncing != 0 && len(w.pending) == 0 {
		isNewlySynced = w.synced != w.syncing
		w.synced = w.syncing
	}

	begun, pending := w.syncing != 0, len(w.pending)
	w.status.set(func(s *status) { s.begun, s.synced, s.pending = begun, w.synced, pending })

	if isNewlySynced {
		w.log.Info("database equals the cluster")
	}
}
