package service

import (
	"net/netip"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// frontends builds the frontends of a port, of three kinds: internal, external and nodePort.
// Frontend.Group and Frontend.Port are set later.
type frontends struct {
	proto    uint8
	toSocket bool // a socket of this host is the endpoint, and takes connections to the host's addresses
	node     *Node
}

// key returns the key of a frontend.
func (f frontends) key(a netip.Addr, port uint16) verdict.ServiceKey {
	return verdict.ServiceKey{Addr: a, Proto: f.proto, Port: port}
}

// owner returns the owner of packets that arrive at the gateway for the address. It is the host if
// one of its sockets takes the connections and the host has the address. It is OVN in all other
// cases: the host's stack would drop packets to an address that the host does not have, while OVN
// sends them back to the socket by the hairpin.
func (f frontends) owner(a netip.Addr) verdict.ServiceOwner {
	if f.toSocket && f.node.owns(a) {
		return verdict.ServiceHost
	}

	return verdict.ServiceOVN
}

// translatesSockets reports whether the host's sockets can be translated. The kernel has no hook
// for SCTP sockets that connect.
func (f frontends) translatesSockets() bool { return f.proto != model.NumberSCTP }

// internal returns frontends for the host's sockets only.
func (f frontends) internal(port uint16, addrs []netip.Addr) []Frontend {
	if !f.translatesSockets() {
		return nil
	}

	var out []Frontend
	for _, a := range addrs {
		out = append(out, Frontend{Key: f.key(a, port), Socket: true})
	}

	return out
}

// external returns frontends for all clients: for packets that arrive at the gateway, and for the
// host's sockets.
func (f frontends) external(port uint16, addrs []netip.Addr) []Frontend {
	var out []Frontend
	for _, a := range addrs {
		out = append(out,
			Frontend{Key: f.key(a, port), Owner: f.owner(a), Socket: f.translatesSockets()})
	}

	return out
}

// nodePort returns the frontends of a node port. Packets that arrive at the gateway have one at
// each of addrs. The host's sockets have one at the unspecified address, which stands for all
// addresses of the host.
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
