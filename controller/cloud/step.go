package cloud

import (
	"fmt"
	"strings"
)

// Step is one request to Neutron. Its String is for logs and goldens.
type Step interface {
	fmt.Stringer
	step()
}

// The steps. IDs in them are of objects that exist.
type (
	// CreateNetwork makes a network.
	CreateNetwork struct{ Name, Description string }
	// CreateSubnet makes a subnet of the length from a subnet pool, without DHCP. In IPv6 its
	// addresses are static.
	CreateSubnet struct {
		Network, Name, SubnetPool string
		Length                    int
		IPv6                      bool
	}
	// AddInterface gives the router the subnet's gateway address.
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
	// RemoveInterface takes the router out of the subnet.
	RemoveInterface struct{ Router, Subnet string }
	// DeleteSubnet deletes a subnet without ports.
	DeleteSubnet struct{ Subnet string }
	// DeleteTrunk deletes a trunk without subports.
	DeleteTrunk struct{ Trunk string }
	// DeleteNetwork deletes a network without ports, and its subnets.
	DeleteNetwork struct{ Network string }
)

// Batch is the number of ports per request. Neutron needs as long for a port in a batch as for one
// alone, so a batch is small enough to be published soon.
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

func (s CreateNetwork) String() string { return "create network " + s.Name }

func (s CreateSubnet) String() string {
	return fmt.Sprintf("create subnet %s /%d from %s in network %s", s.Name, s.Length, s.SubnetPool, s.Network)
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
		for i, f := range p.Fixed {
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
