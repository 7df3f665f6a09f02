package service

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// frontEnds makes front ends of one protocol. The kernel has no hook where
// SCTP sockets connect, so those have no sockets' ones.
type frontEnds struct {
	proto uint8
	host  bool // a socket of this host takes what arrives at the host's own addresses
	node  *Node
}

func (f frontEnds) key(a netip.Addr, port uint16) bpf.ServiceKey {
	return bpf.ServiceKey{Addr: a, Proto: f.proto, Port: port}
}

// owner: what is for an address that is not the host's would be dropped by the
// host's stack; OVN brings it back by the hairpin.
func (f frontEnds) owner(a netip.Addr) bpf.ServiceOwner {
	if f.host && f.node.owns(a) {
		return bpf.ServiceHost
	}
	return bpf.ServiceOVN
}

// internal are for the host's sockets only.
func (f frontEnds) internal(port uint16, addrs []netip.Addr) []FrontEnd {
	var out []FrontEnd
	for _, a := range addrs {
		if f.proto != model.NumberSCTP {
			out = append(out, FrontEnd{Key: f.key(a, port), Socket: true})
		}
	}
	return out
}

// external are for everybody.
func (f frontEnds) external(port uint16, addrs []netip.Addr) []FrontEnd {
	var out []FrontEnd
	for _, a := range addrs {
		out = append(out, FrontEnd{Key: f.key(a, port), Owner: f.owner(a), Socket: f.proto != model.NumberSCTP})
	}
	return out
}

// nodePort are for the world outside on these addresses, and for the host's
// sockets on every own address and loopback.
func (f frontEnds) nodePort(port uint16, is4 bool, addrs []netip.Addr) []FrontEnd {
	every := netip.IPv6Unspecified()
	if is4 {
		every = netip.IPv4Unspecified()
	}
	out := f.internal(port, []netip.Addr{every})
	for _, a := range addrs {
		out = append(out, FrontEnd{Key: f.key(a, port), Owner: f.owner(a)})
	}
	return out
}
