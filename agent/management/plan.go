package management

import (
	"errors"
	"net"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Host parts of the addresses in a node's subnet that are not for pods.
const (
	routerHost = 1 // port rtos-<node> of OVN's cluster router
	portHost   = 2 // ovn-k8s-mp0
)

// Plan is the desired state of the port.
type Plan struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix              // with the prefix lengths of the node's subnets
	Routes    map[netip.Prefix]netip.Addr // next hops by destination
}

// PlanFor derives the port's addresses and routes from the node's subnets. In each subnet, .1 is
// the router and .2 the port. networks are the destinations of routes by the router of their
// family; the node's subnets themselves are connected. The error is that the node has no subnet.
func PlanFor(subnets, networks []netip.Prefix) (Plan, error) {
	if len(subnets) == 0 {
		return Plan{}, errors.New("plan management port: the node has no subnet")
	}

	p := Plan{Routes: map[netip.Prefix]netip.Addr{}}

	for _, s := range subnets {
		own := nth(s, portHost)

		p.Addresses = append(p.Addresses, netip.PrefixFrom(own, s.Bits()))
		if p.MAC == nil || own.Is4() { // derived from the IPv4 address, if the port has one
			p.MAC = annotation.DerivedMAC(own)
		}

		for _, n := range networks {
			if n.Addr().Is4() == own.Is4() && n.Masked() != s.Masked() {
				p.Routes[n.Masked()] = nth(s, routerHost)
			}
		}
	}

	return p, nil
}

// nth returns the n-th address of the prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}

	return a
}
