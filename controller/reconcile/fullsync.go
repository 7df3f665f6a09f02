package reconcile

import "slices"

// A full sync reconciles every key once. It follows each new connection to the database, and a
// period. fullSyncKey in the queue begins it. Its keys wait in the worker's backlog, so that keys
// of events overtake them.

// beginFullSync begins a full sync: it puts all keys into the backlog, from which feedBacklog
// enqueues them in batches. Objects may have been deleted while nothing could be written, so owners
// in the database, objects with an allocation, and owners whose last reconciliation failed are
// keys, too.
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

	w.tidies = w.synced == generation
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

// feedBacklog enqueues the next batch of the full sync when the queue is empty, so that no event
// waits behind more than one such batch. It returns the number of keys.
func (w *worker) feedBacklog() int {
	if w.queue.Len() > 0 {
		return 0
	}

	n := min(len(w.backlog), syncBatchSize)
	for _, k := range w.backlog[:n] {
		w.queue.Add(k)
	}

	w.backlog = w.backlog[n:]

	return n
}

// firstSync reports whether the first full sync of this connection to the database is not complete.
func (w *worker) firstSync() bool { return w.synced != w.syncing || w.syncing == 0 }

// publish updates what Ready and the metrics read of the full sync. If all of its keys are done,
// the database equals the cluster for this connection.
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
