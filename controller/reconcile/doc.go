// Package reconcile keeps the OVN Northbound database equal to the cluster.
//
// Watches of the API server only produce keys. The leader takes keys from a queue in batches. For
// each batch, it sees to it that the objects have their addresses (package ipam, stored in
// annotations), plans the rows of each key (package plan), and commits them (package nb). Start,
// failover, a new database connection and the periodic resync are the same path, the full sync: all
// keys, and all owners found in the database, are enqueued.
//
// After an error only the key is remembered, and retried with backoff.
//
// Loop (loop.go) has the parts of a replica. Read Loop.lead, which begins a term (term.go) and
// recovers the allocations (recovery.go), and then worker.reconcile (worker.go), which processes a
// batch. outcome.go has the ways in which the work on a key ends.
package reconcile
