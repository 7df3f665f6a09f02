// Package nb makes the OVN Northbound database hold the rows of package plan.
//
// Every row written here has its owner's key in external_ids:ovn-ebpf.io/owner. If its name does
// not identify it, it also has its plan.Row ID in external_ids:ovn-ebpf.io/id. Commit compares the
// current rows of an owner with the planned ones, column by column, and writes the difference of a
// whole batch of owners in one transaction. It never touches rows without an owner. Columns with
// references to children are changed by delta, so that references of other clients in them survive.
//
// The observed state is libovsdb's cache, one per connection. After a disconnect nothing is written
// until a new connection has read the whole database.
package nb
