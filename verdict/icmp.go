package verdict

import "slices"

// Types of ICMP (RFC 792).
const (
	icmp4EchoReply   = 0
	icmp4Unreachable = 3
	icmp4Echo        = 8

	icmp4FragNeeded = 4 // code of icmp4Unreachable
)

// Types of ICMPv6 (RFC 4443, RFC 4861). Types below icmp6FirstInfo are errors, the others are
// informational.
const (
	icmp6PacketTooBig  = 2
	icmp6FirstInfo     = 128
	icmp6Echo          = 128
	icmp6EchoReply     = 129
	icmp6RouterSolicit = 133 // the first type of neighbour discovery
	icmp6RouterAdvert  = 134
	icmp6Solicit       = 135
	icmp6Advert        = 136
	icmp6Redirect      = 137 // the last type of neighbour discovery
)

// advertSolicited is a flag in the first byte after an advertisement's ICMP header (RFC 4861, 4.4).
const advertSolicited = 0x40

// icmp4Errors are unreachable, source quench, redirect, time exceeded and parameter problem.
var icmp4Errors = []uint8{3, 4, 5, 11, 12}

// isICMPError reports whether p is an ICMP error, which quotes another packet. It must not be
// called for a later fragment: that has no ICMP header, and its ICMPType 0 would be an error in
// ICMPv6.
func (p *Packet) isICMPError() bool {
	if !p.isICMP() {
		return false
	}

	if p.V6 {
		return p.ICMPType < icmp6FirstInfo
	}

	return slices.Contains(icmp4Errors, p.ICMPType)
}

// isTooBig reports whether p requests shorter packets (RFC 1191, RFC 8201). It is false for a later
// fragment.
func (p *Packet) isTooBig() bool {
	if !p.isICMP() || p.Position == Later {
		return false
	}

	if p.V6 {
		return p.ICMPType == icmp6PacketTooBig
	}

	return p.ICMPType == icmp4Unreachable && p.ICMPCode == icmp4FragNeeded
}

// isEchoRequest must not be called for a later fragment, as isICMPError.
func (p *Packet) isEchoRequest() bool { return p.hasICMPType(icmp4Echo, icmp6Echo) }

// isEchoReply must not be called for a later fragment, whose ICMPType 0 would be an echo reply in
// ICMP.
func (p *Packet) isEchoReply() bool { return p.hasICMPType(icmp4EchoReply, icmp6EchoReply) }

// hasICMPType reports whether p is ICMP of type4, or ICMPv6 of type6.
func (p *Packet) hasICMPType(type4, type6 uint8) bool {
	if p.V6 {
		return p.isICMP() && p.ICMPType == type6
	}

	return p.isICMP() && p.ICMPType == type4
}

// isNeighbourDiscovery reports whether p is neighbour discovery, which must not be fragmented
// (RFC 6980). It is false for all fragments.
func (p *Packet) isNeighbourDiscovery() bool {
	return p.V6 && p.isICMP() && p.Position == Unfragmented &&
		p.ICMPType >= icmp6RouterSolicit && p.ICMPType <= icmp6Redirect
}
