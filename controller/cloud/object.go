package cloud

import (
	"net/netip"
	"slices"
	"strings"
)

// This file has the objects of Neutron, with the attributes that plans need. References are IDs,
// such as Subnet.Network. Project is the ID of the owner. Package openstack reads these objects.

// Network is a Neutron network, for example that of a node's pool.
type Network struct {
	ID, Name, Description, Project string
	MTU                            int  // bytes
	External                       bool // a router can have its external gateway in it
}

// Subnet is a subnet of a Network.
type Subnet struct {
	ID, Name, Network string
	SubnetPool        string // ID of the subnet pool that the prefix is from; "" if it is from none
	Prefix            netip.Prefix
	Gateway           netip.Addr // the router's address; invalid if there is none
}

// Router is a Neutron router.
type Router struct {
	ID, Name, Description, Project string
	External                       string // ID of its external gateway's network; "": no gateway
}

// SubnetPool is a Neutron subnet pool, which has prefixes of one family.
type SubnetPool struct {
	ID, Name, Description, Project string
	Prefixes                       []netip.Prefix
	Shortest, Longest              int // bounds of the prefix length of its subnets
}

// SecurityGroup is a Neutron security group.
type SecurityGroup struct {
	ID, Name, Description, Project string
	Open                           []Rule // its rules that allow everything, and no others
}

// Rule is a security group's rule that allows all packets of a direction and a family.
type Rule struct {
	Direction string // "ingress" or "egress"
	EtherType string // "IPv4" or "IPv6"
}

func (r Rule) String() string { return r.Direction + " " + r.EtherType }

// FixedIP is an address of a port, and the ID of its subnet.
type FixedIP struct {
	Subnet  string
	Address netip.Addr
}

// Port is a Neutron port, or the request for one in CreatePorts, which has no ID, Project, Device
// and Owner.
type Port struct {
	ID, Name, Description, Network, Project string
	MAC                                     string // lower case; "" in a request leaves it to Neutron
	Device, Owner                           string // device_id and device_owner
	FixedIPs                                []FixedIP
	// Groups are the UUIDs of its security groups, sorted. Nil means that they are unknown, and
	// []string{} that the port has none. In a request they must be known.
	Groups []string
}

// has reports whether the port has the address.
func (p Port) has(a netip.Addr) bool {
	for _, f := range p.FixedIPs {
		if f.Address == a {
			return true
		}
	}

	return false
}

// in reports whether the port has an address of the subnet.
func (p Port) in(subnet string) bool {
	return slices.ContainsFunc(p.FixedIPs, func(f FixedIP) bool { return f.Subnet == subnet })
}

// Device owners that Neutron sets.
const (
	ownerSubport = "trunk:subport"
	ownerRouter  = "network:router_interface" // and _distributed, _ha
	ownerService = "network:"                 // everything that Neutron itself has on a network
)

// isRouter reports whether the port is a router's interface in a subnet.
func (p Port) isRouter() bool { return strings.HasPrefix(p.Owner, ownerRouter) }

// isService reports whether the port is Neutron's own, for example for DHCP or metadata.
func (p Port) isService() bool { return strings.HasPrefix(p.Owner, ownerService) && !p.isRouter() }

// Trunk carries the packets of its subports, by VLAN tags, in those of its parent, the port of a
// VM.
type Trunk struct {
	ID, Name, Description string
	Port                  string // ID of the parent
	Subports              []Subport
}

// Subport is a port in a trunk.
type Subport struct {
	Port string // its ID
	Tag  int    // VLAN tag, 1 to 4094
}

// Quota is one of the project's limits, and the number of objects that count. A Limit below zero
// means that they are not limited.
type Quota struct{ Limit, Used int }

// Quotas are the project's limits for what pools and their cluster consist of.
type Quotas struct {
	Networks, Subnets, Ports, Trunks            Quota
	Routers, SubnetPools, SecurityGroups, Rules Quota
}
