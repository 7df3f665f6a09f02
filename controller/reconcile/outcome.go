package reconcile

import (
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// The work on a key that the worker has taken from the queue ends in one of these ways:
//
//   - done: the database has its rows.
//   - postpone: it has reached the limit of its namespace, and returns to the queue after a pause.
//   - requeueKey: another client has changed its object, and it returns to the queue with backoff.
//   - fail: an error, which is reported, and it returns to the queue with backoff.
//   - finish: the end of done and postpone, and of keys whose next event enqueues them.

// done ends the work on a key: the database holds its rows. unserved, if not nil, names the parts
// of the object that could not be served, and becomes an Event. They are tried again only when
// something changes.
func (w *worker) done(k plan.Key, unserved error) {
	w.recordUnserved(k, unserved)
	w.finish(k, "ok")
}

// postpone queues a key again after the wait, because its namespace is at its limit of changes
// (throttle). The key does not count as waiting: the database follows the cluster as fast as it
// may.
func (w *worker) postpone(k plan.Key, wait time.Duration) {
	delete(w.pending, k)
	w.lag.done(k)
	w.finish(k, "postponed")
	w.queue.AddAfter(k, wait)
}

// recordUnserved records that the rows of a key are written, except for the parts of the object
// that could not be served. unserved names these parts; nil: none.
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

// requeueKey queues a key again whose object another client changed while it was annotated.
func (w *worker) requeueKey(k plan.Key) {
	w.counts.countKey(k.Kind, "conflict")
	w.queue.AddRateLimited(k)
	w.queue.Done(k)
}

// fail queues a key again with backoff. The error becomes an Event with that reason, unless the
// reason is empty. After a transient error (isTransient), the replica is not ready until the key is
// done.
func (w *worker) fail(k plan.Key, reason string, err error) {
	if !isTransient(err) { // the key itself is the cause: readiness does not wait for it
		delete(w.pending, k)
		w.lag.done(k)
	}

	w.waitlist.record(k, err)

	if group, waits := w.waitlist.groupOf(k); waits {
		w.regroups.hurry(plan.SelectorKey(group))
	}

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
