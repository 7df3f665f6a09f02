package cloud

import (
	"fmt"
	"net/netip"
	"strings"
)

// Step is one request that changes something in Neutron. openstack.Client.Do sends it. Its
// String is for logs and goldens.
type Step interface {
	fmt.Stringer
	step()
}

// The steps. Fields that are named after an object, such as Network, have the ID of an existing
// object.
type (
	// CreateNetwork makes a network without subnets.
	CreateNetwork struct{ Name, Description string }
	// CreateSubnet makes a subnet in Network. Neutron takes its prefix, of Length bits, from
	// SubnetPool. The subnet has no DHCP. IPv6 selects the family. An IPv6 subnet has no address
	// mode, so the addresses of its ports are static.
	CreateSubnet struct {
		Network, Name, SubnetPool string
		Length                    int
		IPv6                      bool
	}

	// AddInterface gives the router an interface in the subnet, with the subnet's gateway address.
	AddInterface struct{ Router, Subnet string }
	// CreateTrunk makes a trunk of the parent port.
	CreateTrunk struct{ Name, Description, Port string }
	// CreatePorts makes at most Batch ports in one request: all of them or none.
	CreatePorts struct{ Ports []Port }
	// AddSubports puts at most Batch ports into a trunk: all of them or none.
	AddSubports struct {
		Trunk    string
		Subports []Subport
	}

	// RemoveSubports takes at most Batch ports out of a trunk: all of them or none.
	RemoveSubports struct {
		Trunk string
		Ports []string
	}

	// DeletePort deletes a port, which must be in no trunk.
	DeletePort struct{ Port string }
	// RemoveInterface removes the router's interface in the subnet.
	RemoveInterface struct{ Router, Subnet string }
	// DeleteSubnet deletes a subnet without ports.
	DeleteSubnet struct{ Subnet string }
	// DeleteTrunk deletes a trunk without subports.
	DeleteTrunk struct{ Trunk string }
	// DeleteNetwork deletes a network without ports, and its subnets.
	DeleteNetwork struct{ Network string }

	// The steps below are of a Setup only.

	// CreateRouter makes a router. External is the ID of the external network in which the router
	// gets its gateway. If it is "", the router gets no external gateway.
	CreateRouter struct{ Name, Description, External string }
	// SetGateway gives a router that has no external gateway one in Network.
	SetGateway struct{ Router, Network string }
	// CreateSubnetPool makes a subnet pool, whose subnets are parts of Prefix. Shortest and Longest
	// bound their prefix length. Default is the length if a request for a subnet names none.
	CreateSubnetPool struct {
		Name, Description          string
		Prefix                     netip.Prefix
		Shortest, Default, Longest int
	}

	// CreateSecurityGroup makes a security group. Neutron gives it rules, by default for egress.
	CreateSecurityGroup struct{ Name, Description string }
	// CreateRule adds a rule to a security group.
	CreateRule struct {
		Group string
		Rule  Rule
	}
)

// Batch is the maximum number of ports per request. Larger batches would not be faster, because
// Neutron needs the same time for each port of a request. Small ones are published sooner.
const Batch = 8

func (CreateNetwork) step()   {}
func (CreateSubnet) step()    {}
func (AddInterface) step()    {}
func (CreateTrunk) step()     {}
func (CreatePorts) step()     {}
func (AddSubports) step()     {}
func (RemoveSubports) step()  {}
func (DeletePort) step()      {}
func (RemoveInterface) step() {}
func (DeleteSubnet) step()    {}
func (DeleteTrunk) step()     {}
func (DeleteNetwork) step()   {}

func (CreateRouter) step()        {}
func (SetGateway) step()          {}
func (CreateSubnetPool) step()    {}
func (CreateSecurityGroup) step() {}
func (CreateRule) step()          {}

func (s CreateNetwork) String() string { return "create network " + s.Name }

func (s CreateSubnet) String() string {
	return fmt.Sprintf("create subnet %s /%d from %s in network %s",
		s.Name, s.Length, s.SubnetPool, s.Network)
}

func (s AddInterface) String() string {
	return fmt.Sprintf("add interface of router %s in subnet %s", s.Router, s.Subnet)
}

func (s CreateTrunk) String() string {
	return fmt.Sprintf("create trunk %s on port %s", s.Name, s.Port)
}

func (s CreatePorts) String() string {
	var b strings.Builder
	b.WriteString("create ports")

	for _, p := range s.Ports {
		b.WriteByte(' ')

		for i, f := range p.FixedIPs {
			if i > 0 {
				b.WriteByte(',')
			}

			b.WriteString(f.Address.String())
		}

		if p.MAC != "" {
			b.WriteString("/" + p.MAC)
		}
	}

	return b.String()
}

func (s AddSubports) String() string {
	var b strings.Builder
	b.WriteString("add subports of trunk " + s.Trunk)

	for _, p := range s.Subports {
		fmt.Fprintf(&b, " %s=%d", p.Port, p.Tag)
	}

	return b.String()
}

func (s RemoveSubports) String() string {
	return "remove subports of trunk " + s.Trunk + " " + strings.Join(s.Ports, " ")
}

func (s DeletePort) String() string { return "delete port " + s.Port }

func (s RemoveInterface) String() string {
	return fmt.Sprintf("remove interface of router %s in subnet %s", s.Router, s.Subnet)
}

func (s DeleteSubnet) String() string  { return "delete subnet " + s.Subnet }
func (s DeleteTrunk) String() string   { return "delete trunk " + s.Trunk }
func (s DeleteNetwork) String() string { return "delete network " + s.Network }

func (s CreateRouter) String() string {
	if s.External == "" {
		return "create router " + s.Name
	}

	return fmt.Sprintf("create router %s with external gateway in network %s", s.Name, s.External)
}

func (s SetGateway) String() string {
	return fmt.Sprintf("set external gateway of router %s in network %s", s.Router, s.Network)
}

func (s CreateSubnetPool) String() string {
	return fmt.Sprintf("create subnet pool %s of %s for subnets /%d to /%d",
		s.Name, s.Prefix, s.Shortest, s.Longest)
}

func (s CreateSecurityGroup) String() string { return "create security group " + s.Name }

func (s CreateRule) String() string {
	return fmt.Sprintf("create rule of security group %s: %s", s.Group, s.Rule)
}
