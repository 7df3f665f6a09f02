// Package cluster is the agent's view of Kubernetes: all Nodes, the pods on its own node, and all
// Services with their EndpointSlices. Stores keep only the fields that the agent reads; of other
// Nodes, little but the addresses. The agent writes only annotations of its own Node, and Events.
package cluster
