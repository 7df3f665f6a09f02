// Package underlay is the controller of a cluster whose nodes are VMs of an OpenStack project. It
// makes a pool of Neutron ports for each node, as package cloud plans it, and publishes the pool as
// a ConfigMap, which the agent of the node reads.
//
// Run watches Nodes and pods, and takes part in the election of all controllers. The leader reads
// the ConfigMaps of its predecessor, so that a takeover writes nothing. It writes to Neutron and to
// the API server only while it holds the lease.
//
// Pools observes a pool once, executes its plan step by step, and publishes what a node may use
// after each batch. Of all nodes the one with the fewest free ports is served next, so a large pool
// does not delay a small one. After an error a pool is observed anew, later each time; other pools
// are not affected. A complete pool is looked at again at intervals.
package underlay
