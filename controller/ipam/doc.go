// Package ipam hands out what must be unique in a cluster: node ids, nodes'
// pod subnets, and pods' addresses.
//
// Allocations live in annotations. At start the caller holds what the annotations say (Hold), and
// only then allocates; so a crash loses nothing. What was handed out stays its owner's until it is
// released, whatever an annotation says meanwhile. The package is pure bookkeeping: no clock, no
// I/O. A type here has one owner at a time.
package ipam
