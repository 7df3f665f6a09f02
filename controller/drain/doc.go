// Package drain takes a node's gateway out of use before maintenance, and brings
// it back, by an annotation on its Node.
//
// The controller plans by the annotation (package plan) and says on each node without a
// gateway, once its routes are written, by whose gateways its pods leave now: that is
// what is waited for here. The node's agent answers load balancers by it.
package drain
