// Package cluster is the agent's view of Kubernetes: all Nodes, of which it
// keeps little but the addresses, the pods that run on its own, and all
// Services with their EndpointSlices. Stores hold of an object only what the
// agent reads. The agent writes nothing but annotations of its Node.
package cluster
