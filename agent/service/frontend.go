package service

import (
	"net/netip"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// frontends builds the frontends of one protocol. SCTP has no frontends for sockets, as the kernel
// has no hook for connecting SCTP sockets.
type frontends struct {
	proto    uint8
	toSocket bool // a host socket takes connections to the host's own addresses
	node     *Node
}

// key returns the key of a frontend.
func (f frontends) key(a netip.Addr, port uint16) verdict.ServiceKey {
	return verdict.ServiceKey{Addr: a, Proto: f.proto, Port: port}
}

// owner returns the owner of packets to a. The host's stack would drop packets to an address that
// the host does not have; OVN sends them back by the hairpin.
func (f frontends) owner(a netip.Addr) verdict.ServiceOwner {
	if f.toSocket && f.node.owns(a) {
		return verdict.ServiceHost
	}

	return verdict.ServiceOVN
}

// internal returns frontends for the host's sockets only.
func (f frontends) internal(port uint16, addrs []netip.Addr) []Frontend {
	var out []Frontend

	for _, a := range addrs {
		if f.proto != model.NumberSCTP {
			out = append(out, Frontend{Key: f.key(a, port), Socket: true})
		}
	}

	return out
}

// external returns frontends for all clients.
func (f frontends) external(port uint16, addrs []netip.Addr) []Frontend {
	var out []Frontend
	for _, a := range addrs {
		out = append(out,
			Frontend{Key: f.key(a, port), Owner: f.owner(a), Socket: f.proto != model.NumberSCTP})
	}

	return out
}

// nodePort returns frontends for outside clients at addrs, and for the host's sockets at the
// unspecified address.
func (f frontends) nodePort(port uint16, is4 bool, addrs []netip.Addr) []Frontend {
	allOfHost := netip.IPv6Unspecified()
	if is4 {
		allOfHost = netip.IPv4Unspecified()
	}

	out := f.internal(port, []netip.Addr{allOfHost})
	for _, a := range addrs {
		out = append(out, Frontend{Key: f.key(a, port), Owner: f.owner(a)})
	}

	return out
}
