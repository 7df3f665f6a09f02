package verdict

import "slices"

const (
	icmp4EchoReply = 0
	icmp4Echo      = 8

	icmp6InfoFirst     = 128 // below: errors
	icmp6Echo          = 128
	icmp6EchoReply     = 129
	icmp6RouterSolicit = 133
	icmp6RouterAdvert  = 134
	icmp6Solicit       = 135
	icmp6Advert        = 136
	icmp6Redirect      = 137

	icmp4Unreachable  = 3
	icmp4FragNeeded   = 4 // code of unreachable
	icmp6PacketTooBig = 2
	advertSolicited   = 0x40 // first byte of an advertisement's flags (RFC 4861, 4.4)
)

// icmp4Errors are unreachable, source quench, redirect, time exceeded and parameter problem.
var icmp4Errors = []uint8{3, 4, 5, 11, 12}

func (p *Packet) icmpError() bool {
	if !p.icmp() {
		return false
	}

	if p.V6 {
		return p.ICMPType < icmp6InfoFirst
	}

	return slices.Contains(icmp4Errors, p.ICMPType)
}

// tooBig reports whether p requests shorter packets (RFC 1191, RFC 8201).
func (p *Packet) tooBig() bool {
	if !p.icmp() || p.Position == Later {
		return false
	}

	if p.V6 {
		return p.ICMPType == icmp6PacketTooBig
	}

	return p.ICMPType == icmp4Unreachable && p.ICMPCode == icmp4FragNeeded
}

func (p *Packet) echo() bool      { return p.icmpKind(icmp4Echo, icmp6Echo) }
func (p *Packet) echoReply() bool { return p.icmpKind(icmp4EchoReply, icmp6EchoReply) }

func (p *Packet) icmpKind(kind4, kind6 uint8) bool {
	if p.V6 {
		return p.icmp() && p.ICMPType == kind6
	}

	return p.icmp() && p.ICMPType == kind4
}

// neighbour reports whether p is neighbour discovery, which must not be fragmented (RFC 6980).
func (p *Packet) neighbour() bool {
	return p.V6 && p.icmp() && p.Position == Unfragmented &&
		p.ICMPType >= icmp6RouterSolicit && p.ICMPType <= icmp6Redirect
}
