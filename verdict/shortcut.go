package verdict

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// Tuple is the key of a shortcut: a packet's addresses and ports as it arrives.
type Tuple struct {
	FromWire bool // else from a pod
	Proto    uint8
	Src, Dst netip.AddrPort
}

// Shortcut is how OVS has translated the packets of a tuple, which is one direction of a pod's
// connection with the outside. While the shortcut is valid, packets are translated in the same way
// and do not go through OVS.
//
// The model only uses and ends shortcuts. It does not learn them, because it cannot know how OVS
// translates: the tests fill the table.
type Shortcut struct {
	Until          time.Duration // end of the lease; then a packet must go through OVS. 0: ended early
	Epoch          uint32        // valid only in this epoch of Past
	Device         int           // interface index of the pod's device
	Src, Dst       netip.AddrPort
	DstMAC, SrcMAC MAC   // after the translation, as Src and Dst
	From           MAC   // source MAC address of the pod's packets; unused if from the wire
	Longest        int   // length of the longest IP packet that OVS is known to let through
	Hops           uint8 // decrement of TTL or hop limit
	Seen           bool  // from the wire: a packet has gone to OVS since the last renewal, and in this epoch
}

// Segment is a packet that a shortcut can rewrite: whole TCP or UDP without IP options or extension
// headers.
type Segment struct {
	Proto    uint8
	Src, Dst netip.AddrPort
	Flags    uint8 // of TCP
	Hops     uint8 // TTL or hop limit
	Length   int   // bytes after the Ethernet header, with padding
}

func (s *Segment) tuple(fromWire bool) Tuple {
	return Tuple{FromWire: fromWire, Proto: s.Proto, Src: s.Src, Dst: s.Dst}
}

// parseSegment reads the IP packet b. It returns nil if no shortcut can rewrite the packet: if it
// is a fragment, has IP options or extension headers, is shorter than its length field says, or is
// neither TCP nor UDP with a checksum.
func parseSegment(b []byte, v6 bool) *Segment {
	s := &Segment{Length: len(b)}

	var (
		l4, length int // offset of the transport header, and the packet's length by its header
		src, dst   netip.Addr
	)

	if v6 {
		if len(b) < ip6Header+minL4Header || b[0]>>4 != 6 || b[4]|b[5] == 0 { // payload length 0: a jumbogram
			return nil
		}

		l4, length = ip6Header, ip6Header+int(binary.BigEndian.Uint16(b[4:]))
		s.Proto, s.Hops = b[6], b[7]
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	} else {
		if len(b) < ip4Header+minL4Header || b[0] != ip4Plain || binary.BigEndian.Uint16(b[6:])&(ip4MF|ip4Offset) != 0 {
			return nil
		}

		l4, length = ip4Header, int(binary.BigEndian.Uint16(b[2:]))
		s.Hops, s.Proto = b[8], b[9]
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	}

	if length == 0 || length > len(b) || !s.parseL4(b[l4:]) {
		return nil
	}

	s.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b[l4:]))
	s.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[l4+2:]))

	return s
}

// parseL4 reads TCP's flags, and reports whether a shortcut can rewrite the header. b has at least
// eight bytes.
func (s *Segment) parseL4(b []byte) bool {
	const tcpHeader = 20 // without options

	switch s.Proto {
	case protoUDP:
		return b[6]|b[7] != 0 // 0: the sender has computed no checksum
	case protoTCP:
		if len(b) < tcpHeader {
			return false
		}

		s.Flags = b[tcpFlags]

		return true
	}

	return false
}

// isValid reports whether s may be used: its lease has not ended, and neither OVN's flows nor the
// configuration have changed since it was made or renewed.
func (m Model) isValid(s Shortcut, now time.Duration) bool {
	return s.Until > now && s.Epoch == m.Tables.Epoch
}

// bypassOVS changes d, the decision for a packet from the wire, if the packet is OVN's and has a
// shortcut. A packet that cannot use it goes to OVS: FIN and RST end the shortcut, SYN and a packet
// after the lease allow the pod's next packet to renew it, and a packet that does not fit changes
// nothing.
func (m Model) bypassOVS(f *Frame, now time.Duration, d *Decision) {
	p := f.Segment
	if p == nil || d.Reason != SNATPort && d.Reason != Service {
		return
	}

	tuple := p.tuple(true)
	s, ok := m.Tables.Shortcuts[tuple]

	switch {
	case !ok: // no shortcut
	case p.Flags&(flagFIN|flagRST) != 0:
		d.Ends = &tuple
	case p.Flags&flagSYN != 0 || !m.isValid(s, now):
		d.Seen = &tuple
	case p.Hops <= s.Hops || p.Length > s.Longest || !m.Tables.Pods[s.Device]: // does not fit
	default:
		d.Past = &s
		d.Reason = map[Reason]Reason{SNATPort: SNATCached, Service: ServiceCached}[d.Reason]
	}
}

// FromPod decides a packet that a pod sends, at the host's end of the pod's device. Without a valid
// shortcut that fits the packet, ok is false: the packet goes to OVS and is not counted there. The
// decision may still end shortcuts. FIN and RST end those of both directions, SYN only its own.
func (m Model) FromPod(device int, f Frame, now time.Duration) (d Decision, ok bool) {
	p := f.Segment
	if !m.Config.Connected || p == nil || m.isInside(&f.IP) || m.isGeneve(&f.IP) {
		return d, false
	}

	tuple := p.tuple(false)
	s, found := m.Tables.Shortcuts[tuple]

	switch {
	case !found || s.Device != device: // no shortcut of this pod
	case p.Flags&(flagFIN|flagRST|flagSYN) != 0:
		d.Ends = &tuple

		fromWire := Tuple{FromWire: true, Proto: p.Proto, Src: s.Dst, Dst: s.Src}

		other, found := m.Tables.Shortcuts[fromWire]
		if found && other.Device == device && p.Flags&(flagFIN|flagRST) != 0 {
			d.Closes = &fromWire
		}
	case !m.isValid(s, now) || p.Length > s.Longest || p.Hops <= s.Hops || f.Src != s.From: // does not fit
	case p.Proto == protoUDP && m.Tables.HostPort != nil && m.Tables.HostPort(protoUDP, s.Src.Port()):
		// the rule host_owned must check the packet when it leaves OVS
	default:
		return Decision{Reason: OutCached, Past: &s}, true
	}

	return d, false
}

// isInside reports whether a pod's packet is to a pod or a Service. Such packets have no shortcuts.
func (m Model) isInside(p *Packet) bool {
	return contains(m.Config.PodCIDRs, p.V6, p.Dst) || contains(m.Config.ServiceCIDRs, p.V6, p.Dst)
}

// Rewrite returns a copy of the frame as s translates it. Parse must find a Segment in the frame.
func (s Shortcut) Rewrite(frame []byte) []byte {
	out := slices.Clone(frame)
	copy(out, s.DstMAC[:])
	copy(out[6:], s.SrcMAC[:])

	h := rewritableOf(out)
	ipBefore, l4Before := slices.Clone(h.ip), slices.Concat(h.addrs, h.ports)

	copy(h.addrs, slices.Concat(s.Src.Addr().AsSlice(), s.Dst.Addr().AsSlice()))
	binary.BigEndian.PutUint16(h.ports, s.Src.Port())
	binary.BigEndian.PutUint16(h.ports[2:], s.Dst.Port())
	*h.hops -= s.Hops

	if h.ipChecksum != nil {
		updateChecksum(h.ipChecksum, ipBefore, h.ip)
	}

	updateChecksum(h.l4Checksum, l4Before, slices.Concat(h.addrs, h.ports))

	if h.proto == protoUDP && binary.BigEndian.Uint16(h.l4Checksum) == 0 {
		binary.BigEndian.PutUint16(h.l4Checksum, 0xffff) // 0 would mean no checksum
	}

	return out
}

// rewritable has the parts of a frame that Rewrite reads or changes. The slices share the frame's
// memory.
type rewritable struct {
	ip         []byte // header without options
	ipChecksum []byte // nil for IPv6
	proto      uint8
	hops       *uint8 // TTL or hop limit
	addrs      []byte // source and destination
	ports      []byte // source and destination
	l4Checksum []byte
}

func rewritableOf(frame []byte) rewritable {
	var (
		r  rewritable
		l4 []byte
		b  = frame[etherHeader:]
	)

	if binary.BigEndian.Uint16(frame[12:]) == etherIPv4 {
		r.ip, l4 = b[:ip4Header], b[ip4Header:]
		r.hops, r.proto, r.ipChecksum, r.addrs = &b[8], b[9], b[10:12], b[12:20]
	} else {
		r.ip, l4 = b[:ip6Header], b[ip6Header:]
		r.proto, r.hops, r.addrs = b[6], &b[7], b[8:40]
	}

	r.ports, r.l4Checksum = l4[:4], l4[6:8]
	if r.proto == protoTCP {
		r.l4Checksum = l4[16:18]
	}

	return r
}

// updateChecksum adapts a checksum to data that has changed from before to after, which have the
// same even length (RFC 1624). If the data contains the checksum, it must not have changed yet.
func updateChecksum(check, before, after []byte) {
	sum := uint32(^binary.BigEndian.Uint16(check))

	for i := 0; i < len(before); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(before[i:])) + uint32(binary.BigEndian.Uint16(after[i:]))
	}

	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	binary.BigEndian.PutUint16(check, ^uint16(sum))
}
