package link

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Socket is a TCP or UDP socket of the namespace.
type Socket struct {
	Proto     uint8 // unix.IPPROTO_TCP or unix.IPPROTO_UDP
	Local     netip.AddrPort
	Remote    netip.AddrPort // zero if not connected
	Listening bool           // a TCP listener, or an unconnected UDP socket
}

// States of include/net/tcp_states.h, which also describe UDP sockets: tcpEstablished is a connected
// UDP socket, and tcpClose an unconnected one.
const (
	tcpEstablished   = 1
	tcpTimeWait      = 6
	tcpClose         = 7
	tcpListen        = 10
	tcpBoundInactive = 13 // in requests: bound sockets that neither listen nor are connected
)

// Sockets returns the sockets with a local port in first..last that are reachable from outside,
// which excludes those on loopback and connections in TIME_WAIT. The list is sorted and without
// duplicates.
func Sockets(first, last uint16) ([]Socket, error) {
	var out []Socket

	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		all, err := socketsOf(proto)
		if err != nil {
			return nil, err
		}

		for _, s := range all {
			addr, ok := netip.AddrFromSlice(s.ID.Source)
			if !ok || s.ID.SourcePort < first || s.ID.SourcePort > last || s.State == tcpTimeWait ||
				addr.Unmap().IsLoopback() {
				continue
			}

			var remote netip.AddrPort
			if s.ID.DestinationPort != 0 {
				remote = peerOf(s)
			}

			listening := uint8(tcpListen)
			if proto == unix.IPPROTO_UDP {
				listening = tcpClose
			}

			out = append(out, Socket{
				Proto:     proto,
				Local:     netip.AddrPortFrom(addr.Unmap(), s.ID.SourcePort),
				Remote:    remote,
				Listening: s.State == listening,
			})
		}
	}

	slices.SortFunc(out, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})

	return slices.Compact(out), nil
}

// socketsOf returns the namespace's sockets of both families. proto is TCP or UDP.
func socketsOf(proto uint8) ([]*netlink.Socket, error) {
	list := netlink.SocketDiagTCP
	if proto == unix.IPPROTO_UDP {
		list = netlink.SocketDiagUDP
	}

	var out []*netlink.Socket

	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := retry(func() ([]*netlink.Socket, error) { return list(family) })
		if err != nil {
			return nil, fmt.Errorf("list sockets of protocol %d: %w", proto, err)
		}

		out = append(out, all...)
	}

	return out, nil
}

// BoundTCP returns the TCP sockets with a local port in first..last that are bound but neither
// listen nor are connected, except on loopback. Sockets does not return them. Linux before 6.8 does
// not list them, so the result is empty there.
func BoundTCP(first, last uint16) ([]Socket, error) {
	all, err := localAddresses(unix.IPPROTO_TCP, tcpBoundInactive)
	if err != nil {
		return nil, fmt.Errorf("list bound TCP sockets: %w", err)
	}

	var out []Socket

	for _, local := range all {
		if p := local.Port(); p >= first && p <= last && !local.Addr().IsLoopback() {
			out = append(out, Socket{Proto: unix.IPPROTO_TCP, Local: local})
		}
	}

	return out, nil
}

// Receivers returns the local addresses of the namespace's sockets that take packets from any peer,
// also on loopback: TCP listeners, and UDP sockets that are not connected. Both lists are sorted
// and without duplicates.
func Receivers() (tcp, udp []netip.AddrPort, err error) {
	if tcp, err = localAddresses(unix.IPPROTO_TCP, tcpListen); err != nil {
		return nil, nil, fmt.Errorf("list TCP listeners: %w", err)
	}

	if udp, err = localAddresses(unix.IPPROTO_UDP, tcpClose); err != nil {
		return nil, nil, fmt.Errorf("list UDP sockets: %w", err)
	}

	return tcp, udp, nil
}

// localAddresses returns the local addresses of the namespace's sockets of a protocol and state,
// sorted and without duplicates. The kernel selects the sockets, because a host may have many
// others.
func localAddresses(proto, state uint8) ([]netip.AddrPort, error) {
	var out []netip.AddrPort

	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddData(diagRequest{family: family, proto: proto, states: 1 << state})

		dump := func() ([][]byte, error) { return req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY) }

		messages, err := retry(dump)
		if err != nil {
			return nil, err
		}

		for _, m := range messages {
			local, err := diagLocal(m)
			if err != nil {
				return nil, err
			}

			out = append(out, local)
		}
	}

	slices.SortFunc(out, netip.AddrPort.Compare)

	return slices.Compact(out), nil
}

// ErrNoSocketDestroy means that the kernel was built without CONFIG_INET_DIAG_DESTROY.
var ErrNoSocketDestroy = errors.New("kernel lacks CONFIG_INET_DIAG_DESTROY")

// DestroyUDP destroys the namespace's UDP sockets that were connected to a frontend of a Service
// and are translated to one of peers, its backends. It returns their number. The next use of such a
// socket fails with ECONNABORTED, and it has no peer any more. Otherwise a client would not learn
// that its backend is gone. translated reports whether the connection of the socket with that
// cookie was translated to the peer (bpf.Sock.Translated). Sockets that chose the peer themselves
// stay. The error wraps ErrNoSocketDestroy if the kernel lacks support.
func DestroyUDP(
	peers []netip.AddrPort,
	translated func(cookie uint64, peer netip.AddrPort) (bool, error),
) (n int, err error) {
	if len(peers) == 0 {
		return 0, nil
	}

	all, err := socketsOf(unix.IPPROTO_UDP)
	if err != nil {
		return 0, err
	}

	return destroyConnected(connectedTo(all, peers), translated, true)
}

// DestroyUntranslatedUDP destroys the namespace's UDP sockets that are connected to the address of
// one of the frontends itself, because they connected before the frontend existed. It returns their
// number. As with DestroyUDP, the client's next use fails. When the client connects again, the
// socket is translated. A socket stays if its peer is a socket of this namespace, at one of the
// addresses own or at loopback. translated and the error are those of DestroyUDP.
func DestroyUntranslatedUDP(
	frontends []netip.AddrPort,
	own []netip.Addr,
	translated func(cookie uint64, peer netip.AddrPort) (bool, error),
) (n int, err error) {
	if len(frontends) == 0 {
		return 0, nil
	}

	all, err := socketsOf(unix.IPPROTO_UDP)
	if err != nil {
		return 0, err
	}

	found := slices.DeleteFunc(connectedTo(all, frontends), func(s *netlink.Socket) bool {
		to := peerOf(s)

		return (to.Addr().IsLoopback() || slices.Contains(own, to.Addr())) &&
			slices.ContainsFunc(all, func(o *netlink.Socket) bool { return receivesAt(o, to) })
	})

	return destroyConnected(found, translated, false)
}

// receivesAt reports whether the socket may receive packets to an address of the namespace. A
// socket on :: may also receive those of IPv4.
func receivesAt(s *netlink.Socket, to netip.AddrPort) bool {
	local, _ := netip.AddrFromSlice(s.ID.Source)
	local = local.Unmap()

	return s.ID.SourcePort == to.Port() &&
		(local == to.Addr() || local.IsUnspecified() && (local.Is6() || to.Addr().Is4()))
}

// peerOf returns the socket's remote address.
func peerOf(s *netlink.Socket) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(s.ID.Destination)
	return netip.AddrPortFrom(addr.Unmap(), s.ID.DestinationPort)
}

// connectedTo returns the sockets that are connected to one of the peers.
func connectedTo(all []*netlink.Socket, peers []netip.AddrPort) []*netlink.Socket {
	wanted := make(map[netip.AddrPort]bool, len(peers))
	for _, p := range peers {
		wanted[netip.AddrPortFrom(p.Addr().Unmap(), p.Port())] = true
	}

	var out []*netlink.Socket

	for _, s := range all {
		if s.State == tcpEstablished && wanted[peerOf(s)] {
			out = append(out, s)
		}
	}

	return out
}

// destroyConnected destroys those of the connected sockets that are translated, if ofFrontend is
// set, and otherwise those that are not. It returns their number.
func destroyConnected(
	sockets []*netlink.Socket,
	translated func(cookie uint64, peer netip.AddrPort) (bool, error),
	ofFrontend bool,
) (n int, err error) {
	for _, s := range sockets {
		peer := peerOf(s)

		cookie := uint64(s.ID.Cookie[1])<<32 | uint64(s.ID.Cookie[0])

		isTranslated, err := translated(cookie, peer)
		if err != nil {
			return n, fmt.Errorf("destroy UDP socket to %v: %w", peer, err)
		}

		if isTranslated != ofFrontend {
			continue
		}

		err = destroy(s)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) {
			continue // already closed
		}

		if errors.Is(err, unix.EOPNOTSUPP) {
			err = ErrNoSocketDestroy
		}

		if err != nil {
			return n, fmt.Errorf("destroy UDP socket to %v: %w", peer, err)
		}

		n++
	}

	return n, nil
}

// destroy requests the destruction of one UDP socket, identified by its cookie (SOCK_DESTROY). The
// library's function supports only TCP over IPv4.
func destroy(s *netlink.Socket) error {
	req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	req.AddData(diagRequest{s.Family, unix.IPPROTO_UDP, 1 << tcpEstablished, s.ID})
	_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)

	return err
}

// diagRequest is struct inet_diag_req_v2 of linux/inet_diag.h, for a dump or for one socket:
//
//	family, protocol, 2 bytes of zero, states uint32, inet_diag_sockid
//
// inet_diag_sockid is the source and destination port (big-endian), source and destination address
// (16 bytes each), the interface index uint32, and the cookie, two uint32.
type diagRequest struct {
	family, proto uint8
	states        uint32 // a bit for each wanted state
	id            netlink.SocketID
}

// diagRequestLen is the length of struct inet_diag_req_v2.
const diagRequestLen = 56

// Len implements nl.NetlinkRequestData.
func (r diagRequest) Len() int { return diagRequestLen }

// Serialize implements nl.NetlinkRequestData.
func (r diagRequest) Serialize() []byte {
	b := make([]byte, 0, diagRequestLen)
	b = append(b, r.family, r.proto, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, r.states)
	b = binary.BigEndian.AppendUint16(b, r.id.SourcePort)
	b = binary.BigEndian.AppendUint16(b, r.id.DestinationPort)
	b = append(b, diagAddr(r.family, r.id.Source)...)
	b = append(b, diagAddr(r.family, r.id.Destination)...)
	b = binary.NativeEndian.AppendUint32(b, r.id.Interface)
	b = binary.NativeEndian.AppendUint32(b, r.id.Cookie[0])

	return binary.NativeEndian.AppendUint32(b, r.id.Cookie[1])
}

// diagAddr returns the address in inet_diag's 16 bytes, which are common to both families.
func diagAddr(family uint8, ip net.IP) []byte {
	b := make([]byte, 16)
	if family == unix.AF_INET {
		copy(b, ip.To4())
	} else {
		copy(b, ip.To16())
	}

	return b
}

// diagLocal reads the local address and port of struct inet_diag_msg of linux/inet_diag.h, which
// has inet_diag_sockid at offset 4.
func diagLocal(m []byte) (netip.AddrPort, error) {
	const portAt, addrAt, remoteAt = 4, 8, 24
	if len(m) < remoteAt {
		return netip.AddrPort{}, fmt.Errorf("a message of %d bytes", len(m))
	}

	end := remoteAt
	if m[0] == unix.AF_INET {
		end = addrAt + 4
	}

	addr, _ := netip.AddrFromSlice(m[addrAt:end])

	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(m[portAt:])), nil
}
