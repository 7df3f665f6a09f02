package verdict

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Tuple is a packet's addresses and ports as it arrives.
type Tuple struct {
	FromWire bool // else from a pod
	Proto    uint8
	Src, Dst netip.AddrPort
}

// Shortcut is what OVS has made of the packets of a tuple.
type Shortcut struct {
	Until          time.Duration // OVS must be asked from then on; 0: at once
	Epoch          uint32
	Device         int // the pod's
	Src, Dst       netip.AddrPort
	DstMAC, SrcMAC MAC
	From           MAC // source MAC address of the pod's packets
	Longest        int // length of IP packets that OVS is known to pass
	Hops           uint8
	Seen           bool // from the wire: a packet has gone to OVS since the last renewal, and in this epoch
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

// parseSegment returns nil if no shortcut can rewrite the packet b.
func parseSegment(b []byte, v6 bool) *Segment {
	s := &Segment{Length: len(b)}
	l4 := 40

	var (
		length   int
		src, dst netip.Addr
	)

	switch {
	case len(b) < 28:
		return nil
	case !v6:
		if b[0] != 0x45 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return nil
		}

		l4, length, s.Hops, s.Proto = 20, int(binary.BigEndian.Uint16(b[2:])), b[8], b[9]
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	case len(b) < 48 || b[0]>>4 != 6 || b[4]|b[5] == 0:
		return nil
	default:
		length, s.Proto, s.Hops = 40+int(binary.BigEndian.Uint16(b[4:])), b[6], b[7]
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	}

	if length == 0 || length > len(b) || !s.parseL4(b[l4:]) {
		return nil
	}

	s.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b[l4:]))
	s.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[l4+2:]))

	return s
}

func (s *Segment) parseL4(b []byte) bool {
	switch s.Proto {
	case protoUDP:
		return b[6]|b[7] != 0 // no checksum
	case protoTCP:
		if len(b) < 20 {
			return false
		}

		s.Flags = b[13]

		return true
	}

	return false
}

func (m Model) valid(s Shortcut, now time.Duration) bool {
	return s.Until > now && s.Epoch == m.Tables.Epoch
}

// bypassOVS decides a packet from the wire that is OVN's by d.
func (m Model) bypassOVS(f *Frame, now time.Duration, d *Decision) {
	p := f.Segment
	if p == nil || d.Reason != SNATPort && d.Reason != Service {
		return
	}

	k := p.tuple(true)
	s, ok := m.Tables.Shortcuts[k]

	switch {
	case !ok:
	case p.Flags&(flagFIN|flagRST) != 0:
		d.Ends = &k
	case p.Flags&flagSYN != 0 || !m.valid(s, now):
		d.Seen = &k
	case p.Hops <= s.Hops || p.Length > s.Longest || !m.Tables.Pods[s.Device]:
	default:
		d.Past = &s
		d.Reason = map[Reason]Reason{SNATPort: SNATCached, Service: ServiceCached}[d.Reason]
	}
}

// FromPod decides a packet that a pod sends, from that device. Without a valid shortcut ok is false:
// the packet goes to OVS and is not counted there. The decision may still end a shortcut.
func (m Model) FromPod(device int, f Frame, now time.Duration) (d Decision, ok bool) {
	p := f.Segment
	if !m.Config.Connected || p == nil || m.inside(&f.IP) || m.isGeneve(&f.IP) {
		return d, false
	}

	k := p.tuple(false)
	s, found := m.Tables.Shortcuts[k]

	switch {
	case !found || s.Device != device:
	case p.Flags&(flagFIN|flagRST|flagSYN) != 0:
		d.Ends = &k

		other := Tuple{FromWire: true, Proto: p.Proto, Src: s.Dst, Dst: s.Src}

		w, found := m.Tables.Shortcuts[other]
		if found && w.Device == device && p.Flags&(flagFIN|flagRST) != 0 {
			d.Closes = &other
		}
	case !m.valid(s, now) || p.Length > s.Longest || p.Hops <= s.Hops || f.Src != s.From:
	case p.Proto == protoUDP && m.Tables.HostPort != nil && m.Tables.HostPort(protoUDP, s.Src.Port()):
	default:
		return Decision{Reason: OutCached, Past: &s}, true
	}

	return d, false
}

// inside reports whether a pod's packet is to a pod or a Service.
func (m Model) inside(p *Packet) bool {
	return contains(m.Config.PodCIDRs, p.V6, p.Dst) || contains(m.Config.ServiceCIDRs, p.V6, p.Dst)
}

// Rewrite returns the frame as it leaves. It must have a Segment.
func (s Shortcut) Rewrite(frame []byte) []byte {
	out := append([]byte(nil), frame...)
	ip := out[14:]

	l4, check, addrs := 40, 6, ip[8:40]
	if out[12] == etherIPv4>>8 && out[13] == etherIPv4&0xff {
		l4, addrs = 20, ip[12:20]
	}

	proto := ip[6]
	if l4 == 20 {
		proto = ip[9]
	}

	if proto == protoTCP {
		check = 16
	}

	previous := append(append([]byte(nil), addrs...), ip[l4:l4+4]...)
	header := append([]byte(nil), ip[:20]...)

	copy(out, s.DstMAC[:])
	copy(out[6:], s.SrcMAC[:])
	copy(addrs, append(s.Src.Addr().AsSlice(), s.Dst.Addr().AsSlice()...))
	binary.BigEndian.PutUint16(ip[l4:], s.Src.Port())
	binary.BigEndian.PutUint16(ip[l4+2:], s.Dst.Port())

	if l4 == 20 {
		ip[8] -= s.Hops
		updateChecksum(ip[10:], header, ip[:20], 10)
	} else {
		ip[7] -= s.Hops
	}

	updateChecksum(ip[l4+check:], previous, append(append([]byte(nil), addrs...), ip[l4:l4+4]...), -1)

	if proto == protoUDP && binary.BigEndian.Uint16(ip[l4+check:]) == 0 {
		binary.BigEndian.PutUint16(ip[l4+check:], 0xffff)
	}

	return out
}

// updateChecksum adapts a checksum to data that has changed (RFC 1624), without the word at except.
func updateChecksum(check, before, after []byte, except int) {
	sum := uint32(^binary.BigEndian.Uint16(check))

	for i := 0; i < len(before); i += 2 {
		if i != except {
			sum += uint32(^binary.BigEndian.Uint16(before[i:])) + uint32(binary.BigEndian.Uint16(after[i:]))
		}
	}

	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	binary.BigEndian.PutUint16(check, ^uint16(sum))
}
