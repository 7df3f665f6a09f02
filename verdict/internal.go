package verdict

import "net/netip"

// This file has the rules for internal networks: Config.Internal without Config.External. Their
// packets never appear on the wire. If one arrives there, its sender is outside: a source in such a
// network is spoofed, and a destination in one would reach pods past OVN's policies.

// isInternal reports whether a, from a header of that IP version, is in a network of the cluster
// that never appears on the wire. The longest prefix decides. At equal length External takes
// precedence. Addresses of other nodes are on the wire regardless of their network.
func (m Model) isInternal(v6 bool, a netip.Addr) bool {
	internal, external := longest(m.Config.Internal, v6, a), longest(m.Config.External, v6, a)
	return internal > external && m.kindOf(a) != AddrPeer
}

// longest returns the length of the longest prefix of that IP version that contains a, or -1.
func longest(prefixes []netip.Prefix, v6 bool, a netip.Addr) int {
	length := -1

	for _, p := range prefixes {
		if p.Addr().Is4() != v6 && p.Contains(a) {
			length = max(length, p.Bits())
		}
	}

	return length
}

// isSpoofed reports whether the sender of f claims an address that cannot be on the wire: as source
// or, in a neighbour advertisement, as target. f is addressed to this node or to a group. Addresses
// of malformed packets count as well.
func (m Model) isSpoofed(f *Frame) bool {
	switch f.Type {
	case etherARP:
		return f.Whole && m.isInternal(false, f.ARP.Sender)
	case etherIPv4, etherIPv6:
		p := &f.IP
		if m.isInternal(p.V6, p.Src) {
			return true
		}

		isAdvert := f.Whole && p.isNeighbourDiscovery() && p.ICMPType == icmp6Advert

		return isAdvert && p.Target.IsValid() && m.isInternal(true, p.Target)
	}

	return false
}

// entersInternal reports whether f is addressed to an internal address that is not the host's. The
// host would forward it.
func (m Model) entersInternal(f *Frame) bool {
	return isIP(f) && m.isInternal(f.IP.V6, f.IP.Dst) && !m.isHost(f.IP.Dst)
}

// reachesListener reports whether a packet to an internal address, decided by r, may be delivered:
// a Service, a pod or OVN listens there, or the packet is a fragment, an ICMP error or a neighbour
// solicitation for such a listener. The host's stack would forward all others.
func (m Model) reachesListener(r Reason, dst netip.Addr) bool {
	switch r {
	case Service, ServiceHosted, ServiceLocal, PodAddress, OVNAddress, GeneveOVN, FragmentOVN, Fragment,
		ICMPVIP, NDVIP, NDSolicit, NDSolicitOVN:
		return m.Config.Connected
	case ICMPErrorOVN, ICMPErrorEcho, ICMPErrorHost:
		return m.Config.Connected && m.kindOf(dst) == AddrVIP
	}

	return false
}
