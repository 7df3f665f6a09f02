// Package cloud plans what a Kubernetes cluster in underlay mode needs of its OpenStack project.
//
// Pods are Neutron ports there. Each node has a pool of ports that are made ahead, so that a new
// pod needs no call to Neutron. A pool is a network with one or more subnets from the cluster's
// subnet pool, an interface of the cluster's router in each subnet, a trunk on the node's VIF, and
// a port and a subport for each address.
//
// The router, the subnet pools and the security groups are made before the first node joins. Setup
// plans them in the same way.
//
// Each pool is planned on its own. NodePool returns the pool that a Node needs, or a Problem.
// Pool.Plan compares it with the observed objects (Observation) and returns the steps that are
// possible now, in order. Release returns the steps that remove a pool. The caller executes steps,
// adds their results by Observation.After and plans again, without another observation. After an
// error the caller must observe anew. Package underlay is this caller.
//
// Read pool.go first, and the diagram of slots in state.go. A Setup begins in setup.go.
//
// Names are deterministic: network and trunk are <cluster>-<node>, a port is
// <cluster>-<node>-<address> and has that address. A port's VLAN tag is its place in the pool's
// subnets. So nothing needs to be recorded: an interrupted plan continues from what is found, and a
// repeated request is refused by Neutron as a conflict of address or tag.
//
// The package is pure. It reads no clock, does no I/O, and its output is sorted.
package cloud
