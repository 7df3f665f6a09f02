// Package plan turns the objects of a Kubernetes cluster into the rows that the OVN Northbound
// database must hold for them.
//
// Each row has one owner: the cluster, a node, a pod, a Service, a policy or a selector of
// policies. A Key names an owner, and Rows returns all of its rows, sorted and complete. An owner
// that does not exist, or lacks what its rows need, has fewer rows or none. So creation, change,
// deletion and pruning are the same operation.
//
// The package is pure. It reads the given Cluster, allocates no addresses (they come from
// annotations, see package annotation), reads no clock and does no I/O. Rows refer to each other by
// name; package nb resolves the names.
//
// The entry points are Rows and Keys (plan.go), and Affected, which returns the owners to plan
// again after a change (affected.go). Their input is the Cluster (cluster.go), their output the types
// of row.go and policyrow.go. Begin with kinds.go: it lists the kinds with their functions, for example
// nodeRows and nodeChanged. The other files hold the rows of one kind each, or a part of them:
//   - cluster: topology.go, policylog.go (the meter);
//   - nodes: node.go, gateway.go, egress.go, masquerade.go, tunnel.go;
//   - pods: pod.go, hostport.go;
//   - Services: service.go, lbscope.go, endpoint.go, sources.go;
//   - which frontends a Service or a pod with host ports gets: claim.go, conflict.go,
//     controlplane.go, accounting.go, servicenode.go;
//   - policies: policy.go and policymatch.go (ACLs), policyusage.go (port groups), policychange.go
//     (affected owners), policycost.go, policyscope.go, policyshare.go and policybudget.go (which
//     policies fit into the bounds and the share of a namespace);
//   - selectors of policies: selector.go, portgroup.go.
//
// Names and shapes of rows are those of ovn-kubernetes; columns are those of OVN 23.03.
package plan
