package bpf

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	protoGRE = 47

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

var (
	nodeMAC  = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x11}
	peerMAC  = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x99}
	allMAC   = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	groupMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	encap    = netip.MustParseAddr("172.30.1.11")
)

// family builds the same packets in one IP version or the other.
type family struct {
	name                       string
	node, second, vip          netip.Addr // ours: shared with OVN, host's alone, OVN's alone
	remote, foreign            netip.Addr // not ours
	pod, clusterIP             netip.Addr
	icmp                       uint8
	echo, echoReply, unreach   uint8
	tooBig, tooBigCode, expire uint8
}

var v4 = family{
	name: "v4",
	node: netip.MustParseAddr("172.30.0.11"), second: netip.MustParseAddr("172.30.0.111"), vip: netip.MustParseAddr("192.0.2.80"),
	remote: netip.MustParseAddr("198.51.100.1"), foreign: netip.MustParseAddr("172.30.0.12"),
	pod: netip.MustParseAddr("10.244.1.3"), clusterIP: netip.MustParseAddr("10.96.0.10"),
	icmp: protoICMP, echo: 8, echoReply: 0, unreach: 3, tooBig: 3, tooBigCode: 4, expire: 11,
}

var v6 = family{
	name: "v6",
	node: netip.MustParseAddr("fd00:172:30::11"), second: netip.MustParseAddr("fd00:172:30::111"), vip: netip.MustParseAddr("2001:db8:80::80"),
	remote: netip.MustParseAddr("2001:db8:51::1"), foreign: netip.MustParseAddr("fd00:172:30::12"),
	pod: netip.MustParseAddr("fd00:10:244:1::3"), clusterIP: netip.MustParseAddr("fd00:10:96::a"),
	icmp: protoICMPv6, echo: 128, echoReply: 129, unreach: 1, tooBig: 2, expire: 3,
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func ether(dst, src net.HardwareAddr, proto uint16, payload []byte) []byte {
	return join(dst, src, be16(proto), payload)
}

// ip returns the packet without its Ethernet header.
func (f family) ip(src, dst netip.Addr, proto uint8, payload []byte) []byte {
	if src.Is4() {
		return ip4(ip4Header{src: src, dst: dst, proto: proto}, payload)
	}

	return ip6(src, dst, proto, payload)
}

func (f family) etherType() uint16 {
	if f.node.Is4() {
		return 0x0800
	}

	return 0x86dd
}

// rx returns a frame from the wire to the node.
func (f family) rx(src, dst netip.Addr, proto uint8, payload []byte) []byte {
	return ether(nodeMAC, peerMAC, f.etherType(), f.ip(src, dst, proto, payload))
}

// tx returns a frame that OVN sends to the wire.
func (f family) tx(src, dst netip.Addr, proto uint8, payload []byte) []byte {
	return ether(peerMAC, nodeMAC, f.etherType(), f.ip(src, dst, proto, payload))
}

// fragment is a frame with a part of a packet at offset, a multiple of eight.
func (f family) fragment(proto uint8, id uint16, offset int, more bool, payload []byte) []byte {
	if f.node.Is4() {
		flags := uint16(offset / 8)
		if more {
			flags |= 0x2000
		}

		return ether(nodeMAC, peerMAC, 0x0800, ip4(ip4Header{src: f.remote, dst: f.node, proto: proto, id: id, frag: flags}, payload))
	}

	flags := uint16(offset)
	if more {
		flags |= 1
	}

	h := join([]byte{proto, 0}, be16(flags), be32(uint32(id)))

	return ether(nodeMAC, peerMAC, 0x86dd, ip6(f.remote, f.node, 44, join(h, payload)))
}

// icmpError is an ICMP error with the start of the packet it is about.
func (f family) icmpError(kind, code uint8, quoted []byte) []byte {
	return join([]byte{kind, code, 0, 0}, be32(0), quoted)
}

func (f family) ping(id uint16) []byte {
	return join([]byte{f.echo, 0, 0, 0}, be16(id), be16(1), make([]byte, 8))
}

func (f family) pong(id uint16) []byte {
	return join([]byte{f.echoReply, 0, 0, 0}, be16(id), be16(1), make([]byte, 8))
}

type ip4Header struct {
	src, dst netip.Addr
	proto    uint8
	id, frag uint16
	options  []byte
}

func ip4(h ip4Header, payload []byte) []byte {
	size := 20 + len(h.options)
	b := join([]byte{0x40 | byte(size/4), 0}, be16(uint16(size+len(payload))), be16(h.id), be16(h.frag),
		[]byte{64, h.proto, 0, 0}, h.src.AsSlice(), h.dst.AsSlice(), h.options)
	binary.BigEndian.PutUint16(b[10:], checksum(b))

	return join(b, payload)
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

func ip6(src, dst netip.Addr, next uint8, payload []byte) []byte {
	return join([]byte{0x60, 0, 0, 0}, be16(uint16(len(payload))), []byte{next, 64}, src.AsSlice(), dst.AsSlice(), payload)
}

// extension is an IPv6 extension header of 8*(1+extra) bytes.
func extension(next uint8, extra int, payload []byte) []byte {
	return join([]byte{next, byte(extra)}, make([]byte, 6+8*extra), payload)
}

func tcp(sport, dport uint16, flags uint8, payload ...byte) []byte {
	return join(be16(sport), be16(dport), be32(1), be32(1), []byte{5 << 4, flags}, be16(1024), be32(0), payload)
}

// udp has no checksum. With IPv6 only the tests' own parser accepts that.
func udp(sport, dport uint16, payload ...byte) []byte {
	return join(be16(sport), be16(dport), be16(uint16(8+len(payload))), be16(0), payload)
}

func arpPacket(op uint16, spa, tpa netip.Addr) []byte {
	return join(be16(1), be16(0x0800), []byte{6, 4}, be16(op), peerMAC, spa.AsSlice(), make([]byte, 6), tpa.AsSlice())
}

// neighbour is a solicitation (135) or an advertisement (136).
func neighbour(kind uint8, target netip.Addr) []byte {
	return join([]byte{kind, 0, 0, 0}, be32(0), target.AsSlice())
}
