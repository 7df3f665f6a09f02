package link

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HostProto is an IP protocol without ports that the host itself uses with a peer. HostProtos finds
// it by tunnels and IPsec, RawProtos by raw sockets.
type HostProto struct {
	Remote netip.Addr // the peer; unspecified, of either family: any peer
	Proto  uint8      // IP protocol, such as unix.IPPROTO_GRE
}

// HostProtos returns the protocols of the host's tunnel devices that are up (GRE, IP in IP, SIT, in
// either family) and of its IPsec states, sorted. Tunnels over UDP have ports and are excluded. A
// kernel without IPsec has no states.
func HostProtos() ([]HostProto, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	var out []HostProto

	for _, l := range links {
		// The kernel's fallback devices (gre0, sit0, tunl0) are down unless they are used.
		if l.Attrs().Flags&net.FlagUp != 0 {
			out = append(out, tunnelProtos(l)...)
		}
	}

	xfrm := func() ([]netlink.XfrmState, error) { return netlink.XfrmStateList(netlink.FAMILY_ALL) }

	states, err := retry(xfrm)
	if err != nil && !errors.Is(err, syscall.EPROTONOSUPPORT) && !errors.Is(err, syscall.EOPNOTSUPP) {
		return nil, fmt.Errorf("list IPsec states: %w", err)
	}

	if len(states) > 0 {
		addrs, err := Addresses()
		if err != nil {
			return nil, err
		}

		out = append(out, stateProtos(states, addrs)...)
	}

	slices.SortFunc(out, compareProtos)

	return slices.Compact(out), nil
}

// compareProtos defines the order of results.
func compareProtos(a, b HostProto) int {
	return cmp.Or(a.Remote.Compare(b.Remote), cmp.Compare(a.Proto, b.Proto))
}

// tunnelProtos returns the protocols of one device.
func tunnelProtos(l netlink.Link) []HostProto {
	switch t := l.(type) {
	case *netlink.Gretun:
		return protosTo(t.Remote, t.Local, t.EncapType, unix.IPPROTO_GRE)
	case *netlink.Gretap:
		return protosTo(t.Remote, t.Local, t.EncapType, unix.IPPROTO_GRE)
	case *netlink.Iptun:
		return protosTo(t.Remote, t.Local, t.EncapType, innerProtos(t.Proto, unix.IPPROTO_IPIP)...)
	case *netlink.Sittun:
		protos := innerProtos(t.Proto, unix.IPPROTO_IPV6, unix.IPPROTO_IPIP)
		return protosTo(t.Remote, t.Local, t.EncapType, protos...)
	case *netlink.Ip6tnl:
		protos := innerProtos(t.Proto, unix.IPPROTO_IPV6, unix.IPPROTO_IPIP)
		return protosTo(t.Remote, t.Local, t.EncapType, protos...)
	}

	return nil
}

// innerProtos returns the protocol that a tunnel is bound to, or all that it may carry.
func innerProtos(proto uint8, all ...uint8) []uint8 {
	if proto != 0 {
		return []uint8{proto}
	}

	return all
}

// protosTo returns the protocols of a tunnel to a remote address. encap is the tunnel's UDP
// encapsulation, 0 for none: a tunnel over UDP has no such protocols.
func protosTo(remote, local net.IP, encap uint16, protos ...uint8) []HostProto {
	if encap != 0 { // over UDP
		return nil
	}

	r, ok := netip.AddrFromSlice(remote)
	if !ok { // not set: the kernel omits it, and the family is that of the local address
		r = netip.IPv4Unspecified()
		if len(local) == net.IPv6len && local.To4() == nil {
			r = netip.IPv6Unspecified()
		}
	}

	var out []HostProto
	for _, p := range protos {
		out = append(out, HostProto{Remote: r.Unmap(), Proto: p})
	}

	return out
}

// stateProtos returns the protocol (ESP or AH) and the remote ends of each IPsec state. own has the
// host's addresses; an end with another address is remote.
func stateProtos(states []netlink.XfrmState, own []Address) []HostProto {
	var out []HostProto

	for _, s := range states {
		if s.Encap != nil { // over UDP
			continue
		}

		for _, end := range []net.IP{s.Src, s.Dst} {
			a, ok := netip.AddrFromSlice(end)
			a = a.Unmap()

			if ok && !slices.ContainsFunc(own, func(o Address) bool { return o.Prefix.Addr() == a }) {
				out = append(out, HostProto{Remote: a, Proto: uint8(s.Proto)})
			}
		}
	}

	return out
}
