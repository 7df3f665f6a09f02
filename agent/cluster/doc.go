// Package cluster is the agent's view of Kubernetes: all Nodes, the pods on its own node, and all
// Services with their EndpointSlices. Stores keep only the fields that the agent reads; of other
// Nodes, little but the addresses. The agent writes only annotations of its own Node, and Events.
//
// In underlay mode, the view is smaller: the agent's own Node, its pods, and the ConfigMap with the
// ports that pods of this node may have.
//
// Read cluster.go first: New and NewUnderlay build a Cluster with its informers, and Run fills
// them. handlers.go reports changes, trim.go removes fields, dial.go makes the connections. The
// other files have the methods for one kind of object each.
package cluster
