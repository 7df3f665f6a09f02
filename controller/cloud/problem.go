package cloud

import "fmt"

// Reason names a problem, as Events and metrics do.
type Reason string

// The reasons of problems.
const (
	QuotaExceeded  Reason = "QuotaExceeded"  // the project's quota leaves no room
	InvalidNode    Reason = "InvalidNode"    // an annotation or setting of the node is malformed
	UnknownVIF     Reason = "UnknownVIF"     // the node's VIF is not in the project
	ForeignVIF     Reason = "ForeignVIF"     // the VIF is not this node's
	NestedVIF      Reason = "NestedVIF"      // the VIF is a subport of another VM's trunk
	ForeignPorts   Reason = "ForeignPorts"   // a pool's network has ports that are not the pool's
	MTUTooSmall    Reason = "MTUTooSmall"    // the node's NIC cannot carry the network's packets
	PortsExhausted Reason = "PortsExhausted" // no port is free, and the pool is at its maximum

	MissingExtension  Reason = "MissingExtension"  // Neutron lacks a feature
	UnknownObject     Reason = "UnknownObject"     // the project has no such object
	ForeignObject     Reason = "ForeignObject"     // the object is another project's
	AmbiguousObject   Reason = "AmbiguousObject"   // several objects are possible
	ConflictingRouter Reason = "ConflictingRouter" // another router is needed
	InvalidNetwork    Reason = "InvalidNetwork"    // a network cannot be used
	InvalidSubnetPool Reason = "InvalidSubnetPool" // it has no subnet for a node
	OverlappingPrefix Reason = "OverlappingPrefix" // two networks share addresses
)

// Problem is why a pool is not, or not completely, what is wanted. It is an error of one object.
type Problem struct {
	Reason Reason
	Text   string
}

func (p Problem) Error() string { return p.Text }

func problem(r Reason, format string, args ...any) *Problem {
	return &Problem{Reason: r, Text: fmt.Sprintf(format, args...)}
}
