// Package ipam allocates the values that must be unique in a cluster: node ids, nodes' pod
// subnets, and pods' addresses and MAC addresses.
//
// The caller writes allocations into annotations. A new leader first recovers the allocations
// that OVN and annotations have (Allocator.Recover), and only then allocates, so a crash loses
// nothing. An owner keeps an allocation until it is released, even if its annotation is changed.
//
// Allocator is the entry point. It reads annotations and decides which values to allocate: for
// nodes in allocator.go, for pods in allocatepod.go and mac.go, after a change of leaders in
// recover.go. Below it, Nodes (node.go) and Pods (pod.go) record who has which value.
//
// The package uses no clock and does no I/O, except for logs. In names, to hold a value is to
// allocate this value, instead of any free one. Held values are the allocated ones.
package ipam
