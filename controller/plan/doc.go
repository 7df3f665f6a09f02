// Package plan turns the objects of a Kubernetes cluster into the rows that the OVN Northbound
// database must hold for them.
//
// Planning is per owner. A Key names one owner (the cluster, a node, a pod, a service), and Rows
// returns all rows of this owner, sorted and complete. An owner that does not exist, or lacks what
// its rows need, has fewer rows or none. So creation, change, deletion and pruning are the same
// operation.
//
// The package is pure. It reads the given Cluster, allocates no addresses (they come from
// annotations, see package annotation), reads no clock and does no I/O. Rows refer to each other by
// name; package nb resolves the names.
//
// The entry points are Rows and Keys (plan.go), and Affected, which returns the owners to plan
// again after a change (affected.go). Kinds and their functions are listed in kinds.go. The other
// files hold the rows of one kind each, or a part of them:
//   - cluster: topology.go, policylog.go;
//   - nodes: node.go, gateway.go, egress.go, masquerade.go, tunnel.go;
//   - pods: pod.go, hostport.go;
//   - Services: service.go, lbscope.go, endpoint.go, sources.go. The frontends of Services and host
//     ports: claim.go, conflict.go, controlplane.go, accounting.go, servicenode.go;
//   - policies: policy.go and policy*.go; selectors of policies: selector.go, portgroup.go.
//
// Names and shapes of rows are those of ovn-kubernetes; columns are those of OVN 23.03.
package plan
