// Package nb makes the OVN Northbound database hold the rows of package plan.
//
// DB (db.go) is the database and its connection. DB.Commit (commit.go) compares the current rows of
// an owner with the planned ones, column by column, and writes the difference of a whole batch of
// owners in one transaction. Read these two first, then batch.go, which computes the difference.
// DB.Claim (term.go) makes all later transactions conditional on a term, so that a former leader
// cannot write.
//
// Every row written here has its owner's key in external_ids:ovn-ebpf.io/owner. If its name does
// not identify it, it also has its plan.Row ID in external_ids:ovn-ebpf.io/id. Two tables have no
// external_ids: a Static_MAC_Binding belongs to the owner of its port, and a Load_Balancer_Group is
// found by its name, and never deleted.
//
// Rows of other clients are not changed, except that references to deleted rows are removed from
// them. Columns with references to children are changed by delta, so that references of other
// clients in them survive.
//
// The observed state is libovsdb's cache, one per connection. After a disconnect nothing is written
// until a new connection has read the whole database.
package nb
