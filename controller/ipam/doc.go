// Package ipam allocates the values that must be unique in a cluster: node ids, nodes' pod
// subnets, and pods' addresses and MAC addresses.
//
// The caller writes allocations into annotations. A new leader first recovers the allocations
// that OVN and annotations have (Allocator.Recover), and only then allocates, so a crash loses
// nothing. An owner keeps an allocation until it is released, even if its annotation is changed.
//
// The package uses no clock and does no I/O, except for logs. In names, to hold a value is to
// allocate this value, instead of any free one.
package ipam
