package gateway

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// socketKeys returns the ports for which the gateway must ask the kernel
// whose a packet is: those that a socket of the host uses. Sorted, without
// repetition.
func socketKeys(sockets []link.Socket) []bpf.SocketKey {
	var out []bpf.SocketKey
	for _, s := range sockets {
		out = append(out, bpf.SocketKey{Proto: s.Proto, Port: s.Local.Port()})
	}
	slices.SortFunc(out, func(a, b bpf.SocketKey) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(out)
}

// gateKeys returns the ports for which the gateway must ask the kernel after a
// look for the host's sockets in a range: if that failed, every one.
func gateKeys(sockets []link.Socket, scan error, ports bpf.PortRange) []bpf.SocketKey {
	if scan == nil {
		return socketKeys(sockets)
	}
	var out []bpf.SocketKey
	for port := int(ports.First); port <= int(ports.Last); port++ {
		out = append(out, bpf.SocketKey{Proto: unix.IPPROTO_TCP, Port: uint16(port)}, bpf.SocketKey{Proto: unix.IPPROTO_UDP, Port: uint16(port)})
	}
	return out
}

// listeners returns the sockets that the operator should be warned of.
func listeners(sockets []link.Socket) []link.Socket {
	return slices.DeleteFunc(slices.Clone(sockets), func(s link.Socket) bool { return !s.Listening })
}
