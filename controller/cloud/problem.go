package cloud

import (
	"fmt"
	"strings"
)

// Reason names a problem, as Events and metrics do.
type Reason string

// The reasons of problems.
const (
	QuotaExceeded  Reason = "QuotaExceeded"  // the project's quota leaves no room
	InvalidNode    Reason = "InvalidNode"    // an annotation or setting of the node is malformed
	UnknownVIF     Reason = "UnknownVIF"     // the node's VIF is not in the project
	ForeignVIF     Reason = "ForeignVIF"     // the VIF is not this node's
	VIFTaken       Reason = "VIFTaken"       // another node has the VIF
	VIFWithoutVM   Reason = "VIFWithoutVM"   // the VIF's VM was deleted
	NestedVIF      Reason = "NestedVIF"      // the VIF is a subport of another VM's trunk
	AddressTaken   Reason = "AddressTaken"   // a port that is not the pool's has an address of the pool
	TagTaken       Reason = "TagTaken"       // a subport that is not the pool's has a tag of the pool
	PortsRepaired  Reason = "PortsRepaired"  // ports are not as they were published, and are repaired
	ForeignPorts   Reason = "ForeignPorts"   // a pool's network has ports that are not the pool's
	MTUTooSmall    Reason = "MTUTooSmall"    // the node's NIC cannot carry the network's packets
	PortsExhausted Reason = "PortsExhausted" // no port is free, and the pool is at its maximum

	// Refusals of the cloud. Package underlay finds them in errors.
	TrunkRefused       Reason = "TrunkRefused"       // the VIF cannot have a trunk, or not these subports
	SubnetPoolEmpty    Reason = "SubnetPoolEmpty"    // the subnet pool has no prefix left
	RequestForbidden   Reason = "RequestForbidden"   // the cloud's policy forbids a request
	CredentialsRefused Reason = "CredentialsRefused" // Keystone or Neutron refuses the credentials
	RequestRefused     Reason = "RequestRefused"     // Neutron refuses a request for another reason
	CloudAway          Reason = "CloudAway"          // Keystone or Neutron does not answer, or fails

	// Problems of a Setup.
	MissingExtension  Reason = "MissingExtension"  // Neutron lacks a feature
	UnknownObject     Reason = "UnknownObject"     // the project has no such object
	ForeignObject     Reason = "ForeignObject"     // the object is another project's
	AmbiguousObject   Reason = "AmbiguousObject"   // several objects are possible
	ConflictingRouter Reason = "ConflictingRouter" // another router is needed
	InvalidNetwork    Reason = "InvalidNetwork"    // a network cannot be used
	InvalidSubnetPool Reason = "InvalidSubnetPool" // it has no subnet for a node
	OverlappingPrefix Reason = "OverlappingPrefix" // two networks share addresses
)

// Problem is a reason why a pool, or a Setup, is not complete. Other nodes' pools are not affected.
// Text is a sentence for the operator, with the object and the remedy. *Problem is an error.
type Problem struct {
	Reason Reason
	Text   string
}

func (p Problem) Error() string { return p.Text }

// Partial reports whether the pool is complete, except for the ports that the problem names.
func (p Problem) Partial() bool { return p.Reason == AddressTaken || p.Reason == TagTaken }

// problem returns a problem with a formatted text.
func problem(r Reason, format string, args ...any) *Problem {
	return &Problem{Reason: r, Text: fmt.Sprintf(format, args...)}
}

// maxListed is the number of ports that the text of a problem lists. With more, the text might not
// fit into an Event, of which package event writes the first 1,024 bytes.
const maxListed = 5

// enumerate joins the elements of a list. If there are more than limit, it appends the number of
// the others.
func enumerate(list []string, limit int) string {
	if len(list) > limit {
		return strings.Join(list[:limit], ", ") + fmt.Sprintf(" and %d more", len(list)-limit)
	}

	return strings.Join(list, ", ")
}
