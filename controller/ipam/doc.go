// Package ipam hands out what must be unique in a cluster: node ids, nodes'
// pod subnets, and pods' addresses.
//
// Allocations live in annotations. At start the caller holds what the
// annotations say (Hold), and only then allocates; so a crash loses nothing.
// The package is pure bookkeeping: no clock, no I/O. A type here has one owner
// goroutine.
package ipam
