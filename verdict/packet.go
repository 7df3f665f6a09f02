package verdict

import (
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100 // IEEE 802.1Q
	etherIPv6 = 0x86dd
	etherQinQ = 0x88a8 // IEEE 802.1ad

	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132

	// IPv6 extension headers, by their value in the field Next Header before them (RFC 8200).
	extHopByHop = 0
	extRouting  = 43
	extFragment = 44
	extAuth     = 51
	extDestOpts = 60
	maxHeaders  = 7 // extension headers in one packet; with more it is malformed
)

// Lengths of headers in bytes. For IPv4 and IPv6, without options and extension headers.
const (
	etherHeader = 14 // destination, source and EtherType
	arpPacket   = 28 // of IPv4 over Ethernet (RFC 826)
	ip4Header   = 20 // RFC 791
	ip6Header   = 40 // RFC 8200
	minL4Header = 8  // of UDP and ICMP; an ICMP error must quote as many bytes (RFC 792)
)

// The first byte of an IPv4 header without options, and its 16 bits of flags and fragment offset.
const (
	ip4Plain  = 0x45
	ip4MF     = 0x2000 // more fragments follow
	ip4Offset = 0x1fff // not 0: a later fragment
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) isGroup() bool { return m[0]&1 != 0 }

// LinkLocal returns the address that OVN gives a router port with this MAC address (RFC 4291,
// modified EUI-64).
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2],
		11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Frame contains the fields of an Ethernet frame that the rules use. The zero value is a frame
// shorter than an Ethernet header.
type Frame struct {
	Dst, Src MAC
	Tagged   bool     // IEEE 802.1Q or 802.1ad
	Priority bool     // either tag with VLAN 0: the kernel treats the frame as untagged
	VID      uint16   // of the tag
	Type     uint16   // EtherType after an 802.1Q or priority tag; that of the tag itself if parsing stops there
	Length   int      // bytes after the EtherType in Type
	Whole    bool     // ARP or IP, and well formed
	ARP      ARP      // if Whole and Type is ARP
	IP       Packet   // if Type is IP; if not Whole, only the addresses, provided the fixed header is complete
	Segment  *Segment // nil if no shortcut can rewrite the packet
}

// ARP is an ARP packet for IPv4 over Ethernet.
type ARP struct {
	Op             uint16
	Sender, Target netip.Addr
}

// Position is the place of a packet in a datagram.
type Position uint8

const (
	Unfragmented Position = iota // also an atomic fragment (RFC 6946)
	First                        // fragment with the transport header
	Later                        // any other fragment: without ports or ICMP type
)

// Packet contains the fields of an IP packet that the rules use. An IPv4-mapped address in an IPv6
// header is unmapped: see isMapped. Fields that the packet does not have are zero.
type Packet struct {
	V6               bool
	Src, Dst         netip.Addr
	Proto            uint8 // after the extension headers; of a later fragment, from the fragment header
	Position         Position
	FragID           uint32 // identification of the datagram; 0 if IPv6 has no fragment header
	SrcPort, DstPort uint16 // TCP, UDP, SCTP
	Flags            uint8  // TCP; 0 if the segment is too short to have them
	ICMPType         uint8
	ICMPCode         uint8
	EchoID           uint16     // bytes 4 and 5 of any ICMP message: the identifier of an echo
	Target           netip.Addr // of a neighbour solicitation or advertisement; zero: truncated
	Solicited        bool       // S flag of a neighbour advertisement
	Quote            *Packet    // of an ICMP error; nil: not readable
}

// isICMP reports whether p is ICMP of its IP version. A later fragment may be, too.
func (p *Packet) isICMP() bool {
	if p.V6 {
		return p.Proto == protoICMPv6
	}

	return p.Proto == protoICMP
}

// isMapped reports whether a, one of p's addresses, is an IPv4-mapped address in an IPv6 header
// (::ffff:a.b.c.d). It must not be treated as the IPv4 address.
func (p *Packet) isMapped(a netip.Addr) bool { return p.V6 && a.Is4() }

func hasPorts(proto uint8) bool {
	return proto == protoTCP || proto == protoUDP || proto == protoSCTP
}

// Parse reads a frame. It never fails: unreadable fields stay zero. It ignores lengths in IP
// headers, except for Segment, and uses the frame's length.
func Parse(b []byte) Frame {
	var f Frame
	if len(b) < etherHeader {
		return f
	}

	f.Dst, f.Src, f.Type = MAC(b[0:6]), MAC(b[6:12]), binary.BigEndian.Uint16(b[12:])
	b = b[etherHeader:]

	// A tag is a TCI (priority and VID) and the EtherType after the tag. The model looks behind the
	// tags that the kernel and OVS treat as the gateway network's: 802.1Q, and VLAN 0 of either kind.
	f.Tagged = isTag(f.Type)
	if f.Tagged && len(b) >= 4 {
		vid, inner := binary.BigEndian.Uint16(b)&0xfff, binary.BigEndian.Uint16(b[2:])
		f.VID, f.Priority = vid, vid == 0

		if f.Priority || f.Type == etherVLAN {
			f.Type, b = inner, b[4:]
		}
	}

	f.Length = len(b)
	switch f.Type {
	case etherARP:
		f.ARP, f.Whole = parseARP(b)
	case etherIPv4, etherIPv6:
		f.Whole = f.IP.parse(b, f.Type == etherIPv6)
		if f.Whole && f.IP.isICMP() && f.IP.Position != Later {
			f.IP.parseICMP(b)
		}

		if !f.Tagged {
			f.Segment = parseSegment(b, f.Type == etherIPv6)
		}
	}

	return f
}

// parseARP reads an ARP packet (RFC 826): hardware and protocol type, their address lengths, the
// operation, and hardware and protocol address of sender and target. It does not check the types.
func parseARP(b []byte) (ARP, bool) {
	if len(b) < arpPacket {
		return ARP{}, false
	}

	return ARP{
		Op:     binary.BigEndian.Uint16(b[6:]),
		Sender: netip.AddrFrom4([4]byte(b[14:18])),
		Target: netip.AddrFrom4([4]byte(b[24:28])),
	}, true
}

// parse reads an IP packet and its transport header, and reports whether it is well formed.
func (p *Packet) parse(b []byte, v6 bool) bool {
	l4, ok := p.parseHeaders(b, v6)
	return ok && p.parseL4(b, l4)
}

// parseHeaders reads the IP header and its extensions. It returns the offset of the transport
// header, which may be past the end of b.
func (p *Packet) parseHeaders(b []byte, v6 bool) (l4 int, ok bool) {
	p.V6 = v6
	if v6 {
		return p.parse6(b)
	}

	return p.parse4(b)
}

func (p *Packet) parse4(b []byte) (l4 int, ok bool) {
	if len(b) < ip4Header {
		return 0, false
	}

	// before the next check, because some rules use a malformed packet's addresses
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))

	words := int(b[0] & 0xf) // IHL: length of the header in words of four bytes
	if b[0]>>4 != 4 || words < ip4Header/4 {
		return 0, false
	}

	p.Proto = b[9]
	p.FragID = uint32(binary.BigEndian.Uint16(b[4:]))

	switch frag := binary.BigEndian.Uint16(b[6:]); {
	case frag&ip4Offset != 0:
		p.Position = Later
	case frag&ip4MF != 0:
		p.Position = First
	}

	return words * 4, true
}

func (p *Packet) parse6(b []byte) (l4 int, ok bool) {
	if len(b) < ip6Header {
		return 0, false
	}

	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])).Unmap(), netip.AddrFrom16([16]byte(b[24:40])).Unmap()
	if b[0]>>4 != 6 {
		return 0, false
	}

	// An extension header begins with the type of the next header and its own length.
	l4, next := ip6Header, b[6]
	for range maxHeaders + 1 {
		if !isExtension(next) {
			p.Proto = next
			return l4, true
		}

		if len(b) < l4+8 { // the minimum size of extension headers
			return 0, false
		}

		h := b[l4:]

		switch next {
		case extFragment:
			l4 += 8

			if p.fragment(h) == Later {
				p.Proto = h[0]
				return l4, true
			}
		case extAuth: // the length is in words of four bytes, without the first two (RFC 4302)
			l4 += (int(h[1]) + 2) * 4
		default: // the length is in units of eight bytes, without the first one
			l4 += (int(h[1]) + 1) * 8
		}

		next = h[0]
	}

	return 0, false
}

func isExtension(next uint8) bool {
	return next == extHopByHop || next == extRouting || next == extFragment || next == extAuth ||
		next == extDestOpts
}

// fragment reads a fragment header of IPv6 (RFC 8200, 4.5): after the next header and a reserved
// byte, 13 bits of offset, two reserved bits, the flag M, and the identification.
func (p *Packet) fragment(h []byte) Position {
	const offset, moreFragments = 0xfff8, 0x0001

	p.FragID = binary.BigEndian.Uint32(h[4:])
	switch frag := binary.BigEndian.Uint16(h[2:]); {
	case frag&offset != 0:
		p.Position = Later
	case frag&moreFragments != 0:
		p.Position = First
	}

	return p.Position
}

// parseL4 reads ports, or the header of ICMP, from the IP packet b, and reports whether the packet
// is long enough to have them. Of TCP it requires only eight bytes, because an ICMP error need not
// quote more.
func (p *Packet) parseL4(b []byte, l4 int) bool {
	if p.Position == Later || !hasPorts(p.Proto) && !p.isICMP() {
		return true
	}

	if len(b) < l4+minL4Header {
		return false
	}

	b = b[l4:]
	if p.isICMP() {
		p.ICMPType, p.ICMPCode, p.EchoID = b[0], b[1], binary.BigEndian.Uint16(b[4:])
		return true
	}

	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if p.Proto == protoTCP && len(b) > tcpFlags {
		p.Flags = b[tcpFlags]
	}

	return true
}

// parseICMP reads the body of the ICMP message in the IP packet b, which parse has found well
// formed: the packet that an error quotes, or the target of neighbour discovery.
func (p *Packet) parseICMP(b []byte) {
	var again Packet // parse does not keep the offset

	l4, _ := again.parseHeaders(b, p.V6)
	body := b[l4+minL4Header:]

	switch {
	case p.isICMPError():
		var q Packet
		if q.parse(body, p.V6) {
			p.Quote = &q
		}
	case p.isNeighbourDiscovery() && (p.ICMPType == icmp6Solicit || p.ICMPType == icmp6Advert) && len(body) >= 16:
		p.Target = netip.AddrFrom16([16]byte(body[:16])).Unmap()
		p.Solicited = p.ICMPType == icmp6Advert && b[l4+4]&advertSolicited != 0
	}
}
