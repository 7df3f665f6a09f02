package corpus

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Numbers of Ethernet and IP in frames.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherVLAN = 0x8100
	EtherIPv6 = 0x86dd
	EtherQinQ = 0x88a8
	EtherLLDP = 0x88cc

	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoGRE    = 47
	ProtoESP    = 50
	ProtoOSPF   = 89
	ProtoPIM    = 103
	ProtoVRRP   = 112
	ProtoICMPv6 = 58
	ProtoSCTP   = 132

	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10

	extHopByHop = 0
	extRouting  = 43
	extFragment = 44
	extAuth     = 51
	extDestOpts = 60
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// Ether returns an Ethernet frame.
func Ether(dst, src verdict.MAC, proto uint16, payload []byte) []byte {
	return join(dst[:], src[:], be16(proto), payload)
}

// Tag inserts an 802.1Q tag after the frame's addresses.
func Tag(vid uint16, frame []byte) []byte { return tag(EtherVLAN, vid, frame) }

func tag(proto, tci uint16, frame []byte) []byte {
	return join(frame[:12], be16(proto), be16(tci), frame[12:])
}

// Untag returns the frame as a NIC with tag offload delivers it: without its outermost tag. proto
// and tci are from that tag; proto is 0 if there is none. For a frame with a truncated tag, which
// the kernel drops, it returns only the addresses.
func Untag(frame []byte) (proto, tci uint16, rest []byte) {
	if len(frame) < 14 {
		return 0, 0, frame
	}

	proto = binary.BigEndian.Uint16(frame[12:])
	if proto != EtherVLAN && proto != EtherQinQ {
		return 0, 0, frame
	}

	if len(frame) < 16 {
		return proto, 0, frame[:12]
	}

	return proto, binary.BigEndian.Uint16(frame[14:]), join(frame[:12], frame[16:])
}

// ARP returns an ARP packet; op 1 is a request, 2 a reply.
func ARP(op uint16, sha verdict.MAC, sender, target netip.Addr) []byte {
	return join(be16(1), be16(EtherIPv4), []byte{6, 4}, be16(op), sha[:], sender.AsSlice(), make([]byte, 6), target.AsSlice())
}

// L4 is the payload of an IP packet.
type L4 struct {
	Proto uint8
	Data  []byte
}

// TCP returns a segment without options.
func TCP(sport, dport uint16, flags uint8, payload ...byte) L4 {
	return L4{ProtoTCP, join(be16(sport), be16(dport), be32(1), be32(1), []byte{5 << 4, flags}, be16(1024), be32(0), payload)}
}

// UDP returns a datagram without checksum. With IPv6 only parsers accept that.
func UDP(sport, dport uint16, payload ...byte) L4 {
	return L4{ProtoUDP, join(be16(sport), be16(dport), be16(uint16(8+len(payload))), be16(0), payload)}
}

// SCTP returns a common header and a DATA chunk without data.
func SCTP(sport, dport uint16) L4 {
	return L4{ProtoSCTP, join(be16(sport), be16(dport), be32(1), be32(0), []byte{0, 3}, be16(16), make([]byte, 12))}
}

// GRE returns a header and an empty IPv4 payload.
func GRE() L4 { return L4{ProtoGRE, join(be16(0), be16(EtherIPv4), make([]byte, 20))} }

// ESP returns an SPI, a sequence number and zeros as ciphertext.
func ESP() L4 { return L4{ProtoESP, join(be32(0x1234), be32(1), make([]byte, 24))} }

// Part returns the payload of a later fragment, without a transport header.
func Part(proto uint8) L4 { return L4{proto, make([]byte, 24)} }

// IP is an IP packet. Its version is that of Src.
type IP struct {
	Src, Dst netip.Addr
	L4       L4
	Options  []byte // IPv4, a multiple of four bytes
	Ext      []Ext  // IPv6, outermost first
	Fragment *Fragment
	TTL      uint8 // 0: 64
}

// Fragment is the part of a datagram that a packet contains.
type Fragment struct {
	ID     uint32 // 16 bits with IPv4
	Offset uint16 // bytes, a multiple of eight
	More   bool
}

// Ext is an IPv6 extension header. Rest follows its first two bytes.
type Ext struct {
	Kind, Len uint8
	Rest      []byte
}

// DestOpts, HopByHop and Routing have 8*(1+extra) bytes, Auth has 4*(2+words).
func DestOpts(extra uint8) Ext { return plainExt(extDestOpts, extra) }
func HopByHop(extra uint8) Ext { return plainExt(extHopByHop, extra) }
func Routing(extra uint8) Ext  { return plainExt(extRouting, extra) }
func Auth(words uint8) Ext     { return Ext{extAuth, words, make([]byte, 4*int(words)+6)} }

func plainExt(kind, extra uint8) Ext {
	rest := make([]byte, 6+8*int(extra))
	if kind != extRouting {
		rest[0], rest[1] = 1, byte(len(rest)-2) // PadN (RFC 8200, 4.2)
	}

	return Ext{kind, extra, rest}
}

func (f *Fragment) header() Ext {
	flags := f.Offset
	if f.More {
		flags |= 1
	}

	return Ext{extFragment, 0, join(be16(flags), be32(f.ID))}
}

// Bytes returns the packet, starting with its IP header.
func (p IP) Bytes() []byte {
	if p.TTL == 0 {
		p.TTL = 64
	}

	if p.Src.Is4() {
		return p.v4()
	}

	return p.v6()
}

func (p IP) v4() []byte {
	size := 20 + len(p.Options)

	id, frag := uint16(7), uint16(0)
	if p.Fragment != nil {
		id, frag = uint16(p.Fragment.ID), p.Fragment.Offset/8
		if p.Fragment.More {
			frag |= 0x2000
		}
	}

	b := join([]byte{0x40 | byte(size/4), 0}, be16(uint16(size+len(p.L4.Data))), be16(id), be16(frag),
		[]byte{p.TTL, p.L4.Proto, 0, 0}, p.Src.AsSlice(), p.Dst.AsSlice(), p.Options)
	binary.BigEndian.PutUint16(b[10:], checksum(b))

	return join(b, p.L4.Data)
}

func (p IP) v6() []byte {
	ext := p.Ext
	if p.Fragment != nil {
		ext = append(ext[:len(ext):len(ext)], p.Fragment.header())
	}

	next, body := p.L4.Proto, p.L4.Data
	for i := len(ext) - 1; i >= 0; i-- {
		body = join([]byte{next, ext[i].Len}, ext[i].Rest, body)
		next = ext[i].Kind
	}

	src, dst := p.Src.As16(), p.Dst.As16()

	return join([]byte{0x60, 0, 0, 0}, be16(uint16(len(body))), []byte{next, p.TTL}, src[:], dst[:], body)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}

	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	return ^uint16(sum)
}

// Frame returns the packet in an untagged frame.
func (p IP) Frame(dst, src verdict.MAC) []byte {
	if p.Src.Is4() {
		return Ether(dst, src, EtherIPv4, p.Bytes())
	}

	return Ether(dst, src, EtherIPv6, p.Bytes())
}
