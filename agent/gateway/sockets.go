package gateway

import (
	"cmp"
	"slices"

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

// listeners returns the sockets that the operator should be warned of.
func listeners(sockets []link.Socket) []link.Socket {
	return slices.DeleteFunc(slices.Clone(sockets), func(s link.Socket) bool { return !s.Listening })
}
