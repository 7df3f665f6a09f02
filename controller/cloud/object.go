package cloud

import (
	"net/netip"
	"strings"
)

// Network is a Neutron network: a node's logical switch.
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

// FixedIP is an address that a port has, and the ID of its subnet.
type FixedIP struct {
	Subnet  string
	Address netip.Addr
}

// Port is a Neutron port. Fixed is in the order of the port's subnets.
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

// Device owners that Neutron sets.
const (
	ownerSubport = "trunk:subport"
	ownerRouter  = "network:router_interface" // and _distributed, _ha
	ownerService = "network:"                 // everything that Neutron itself has on a network
)

func (p Port) isRouter() bool  { return strings.HasPrefix(p.Owner, ownerRouter) }
func (p Port) isService() bool { return strings.HasPrefix(p.Owner, ownerService) && !p.isRouter() }

// Trunk makes its parent, a VM's port, carry Subports in VLANs.
type Trunk struct {
	ID, Name, Description, Port string
	Subports                    []Subport
}

// Subport is a port in a trunk, by its VLAN tag.
type Subport struct {
	Port string
	Tag  int // 1 to 4094
}

// Quota is one of the project's limits. A Limit below zero is none.
type Quota struct{ Limit, Used int }

// Quotas are the project's limits for what pools and their cluster consist of.
type Quotas struct {
	Networks, Subnets, Ports, Trunks            Quota
	Routers, SubnetPools, SecurityGroups, Rules Quota
}

// Line is a port of a pool as it is published to the node. Its tag identifies it: a repaired port
// has the tag, MAC and addresses of the one before, and another UUID.
type Line struct {
	Port, MAC string
	Tag       int
	Addresses []netip.Addr // one, or two with IPv4 first
	Groups    []string     // sorted; nil: unknown, []string{}: none
	// Held ports are gone from Neutron, or are not what was published: no pod may take one.
	Held bool
}
