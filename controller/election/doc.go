// Package election runs a function while this replica of the controller holds the Lease that all
// controllers of the cluster share. Controllers of both modes use the same Lease, so an overlay
// controller and an underlay controller never lead together.
//
// Each write of a leader must be preceded by Term.Hold. It returns nil only while no other replica
// can have the Lease, also in a process that was stopped, or on a machine that was suspended.
//
// Run is the entry (election.go). The election itself is client-go's. lease.go records when the
// Lease was renewed, and term.go decides from that whether the leader may write.
package election
