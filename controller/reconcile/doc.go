// Package reconcile keeps the OVN Northbound database equal to the cluster.
//
// Watches of the API server only produce keys. The leader takes keys from a
// queue in batches, sees to it that the objects have their addresses (package
// ipam, stored in annotations), plans each key's rows (package plan) and
// commits the batch (package nb). Start, failover, a new database connection
// and the periodic resync are the same path: all keys, and all owners found in
// the database, are enqueued.
//
// After an error nothing is remembered but the key, which returns with backoff.
package reconcile
