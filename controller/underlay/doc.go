// Package underlay keeps the pools of nodes in underlay mode as package cloud plans them.
//
// Pools observes a pool once, executes its plan step by step, and publishes what a node may use
// after each batch. Of all nodes the one with the fewest free ports is served next, so a large pool
// does not delay a small one. After an error a pool is observed anew, later each time; other pools
// are not affected. A complete pool is looked at again at intervals.
package underlay
