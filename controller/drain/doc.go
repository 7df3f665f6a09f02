// Package drain takes a node's gateway out of use before maintenance, and brings it back, by an
// annotation on its Node.
//
// The controller reads the annotation when it plans routes (package plan). Once the routes of a
// node without a gateway are written, the controller annotates that node with the gateways that its
// pods use. This package waits for these annotations. The agent of the drained node fails the
// health checks of load balancers.
//
// drain.go annotates and waits. nodes.go has the decisions, as functions of the listed Nodes.
package drain
