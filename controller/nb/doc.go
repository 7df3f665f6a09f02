// Package nb makes the OVN Northbound database hold the rows that package plan
// wants.
//
// Every row written here carries its owner's key in external_ids:ovn-ebpf.io/owner,
// and, where its name does not identify it, its plan.Row ID in
// external_ids:ovn-ebpf.io/id. Commit compares what an owner has with what it
// shall have, column by column, and writes the difference of a whole batch of
// owners in one transaction. Rows without an owner are never touched. Columns
// that hold references to other rows' children are changed by delta, so that
// others' references in them survive.
//
// The observed state is libovsdb's cache, one for each connection: after a
// disconnect nothing is written until a new connection has the whole database.
package nb
