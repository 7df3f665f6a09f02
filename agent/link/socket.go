package link

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Socket is a TCP or UDP socket of the namespace.
type Socket struct {
	Proto     uint8 // unix.IPPROTO_TCP or unix.IPPROTO_UDP
	Local     netip.AddrPort
	Listening bool // a TCP listener, or an unconnected UDP socket
}

// States of include/net/tcp_states.h.
const (
	tcpTimeWait = 6
	tcpClose    = 7
	tcpListen   = 10
)

// Sockets returns the sockets whose local port is in first..last and that
// can be reached from outside (not bound to loopback), sorted.
func Sockets(first, last uint16) ([]Socket, error) {
	var out []Socket
	for _, d := range []struct {
		proto  uint8
		family uint8
		list   func(uint8) ([]*netlink.Socket, error)
	}{
		{unix.IPPROTO_TCP, unix.AF_INET, netlink.SocketDiagTCP},
		{unix.IPPROTO_TCP, unix.AF_INET6, netlink.SocketDiagTCP},
		{unix.IPPROTO_UDP, unix.AF_INET, netlink.SocketDiagUDP},
		{unix.IPPROTO_UDP, unix.AF_INET6, netlink.SocketDiagUDP},
	} {
		all, err := retry(func() ([]*netlink.Socket, error) { return d.list(d.family) })
		if err != nil {
			return nil, fmt.Errorf("list sockets of protocol %d: %w", d.proto, err)
		}
		for _, s := range all {
			addr, ok := netip.AddrFromSlice(s.ID.Source)
			if !ok || s.ID.SourcePort < first || s.ID.SourcePort > last || s.State == tcpTimeWait || addr.Unmap().IsLoopback() {
				continue
			}
			out = append(out, Socket{
				Proto: d.proto, Local: netip.AddrPortFrom(addr.Unmap(), s.ID.SourcePort),
				Listening: s.State == tcpListen && d.proto == unix.IPPROTO_TCP || s.State == tcpClose && d.proto == unix.IPPROTO_UDP,
			})
		}
	}
	slices.SortFunc(out, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Local.Compare(b.Local))
	})
	return slices.Compact(out), nil
}
