package management

import (
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
)

// Host parts of the addresses in a node's subnet that are not for pods.
const (
	gatewayHost = 1 // rtos-<node>
	portHost    = 2 // ovn-k8s-mp0
)

// Plan is the desired state of the port.
type Plan struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Routes    map[netip.Prefix]netip.Addr // next hops by destination
}

// PlanFor derives the port's addresses and routes from the node's subnets. In each subnet, .1 is
// the router and .2 the port. All networks of the same family are routed through the router.
func PlanFor(subnets, networks []netip.Prefix) (Plan, error) {
	if len(subnets) == 0 {
		return Plan{}, errors.New("plan management port: the node has no subnet")
	}

	p := Plan{Routes: map[netip.Prefix]netip.Addr{}}

	for _, s := range subnets {
		own := nth(s, portHost)

		p.Addresses = append(p.Addresses, netip.PrefixFrom(own, s.Bits()))
		if p.MAC == nil || own.Is4() { // the IPv4 address counts, if there is one
			p.MAC = MAC(own)
		}

		for _, n := range networks {
			if n.Addr().Is4() == own.Is4() && n.Masked() != s.Masked() {
				p.Routes[n.Masked()] = nth(s, gatewayHost)
			}
		}
	}

	return p, nil
}

// MAC derives a MAC address from an IP address, as MAC in controller/plan: 0a:58 followed by the IPv4
// address, or by the last four bytes of the SHA-256 of an IPv6 address.
func MAC(ip netip.Addr) net.HardwareAddr {
	b := ip.AsSlice()
	if ip.Is6() {
		sum := sha256.Sum256([]byte(ip.String()))
		b = sum[len(sum)-4:]
	}

	return append(net.HardwareAddr{0x0a, 0x58}, b...)
}

// nth returns the n-th address of the prefix.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}

	return a
}
