package bpf

import (
	"math/rand/v2"
	"net"
	"net/netip"
)

// frameMaker makes random frames that are likely to meet a rule, or to miss it
// by little.
type frameMaker struct {
	*rand.Rand
	family
	out     bool     // from OVN, else from the wire
	clients []uint16 // ports of connections to the host's own listener
}

func pick[T any](m *frameMaker, of ...T) T { return of[m.IntN(len(of))] }

// one in n.
func (m *frameMaker) rarely(n int) bool { return m.IntN(n) == 0 }

func (m *frameMaker) frame() []byte {
	m.family = pick(m, v4, v6)
	b := m.whole()
	if m.rarely(10) {
		b = b[:14+m.IntN(len(b)-14+1)]
	}
	if m.rarely(20) && len(b) > 14 {
		b[14+m.IntN(len(b)-14)] ^= 1 << m.IntN(8)
	}
	return b
}

func (m *frameMaker) whole() []byte {
	switch n := m.IntN(20); {
	case n == 0:
		return m.ether(pick[uint16](m, 0x88b5, 0x88cc, 46, 0x0805, 0x0807), make([]byte, m.IntN(60)))
	case n < 3:
		return m.ether(0x0806, m.arp())
	case n < 5:
		m.family = v6
		return m.ether(0x86dd, m.neighbour())
	case n == 5:
		m.family = v4
		return m.ether(0x0800, m.tunnel())
	case n < 8 && !m.out:
		return m.part()
	}
	return m.ether(m.etherType(), m.packet(m.source(), m.dest(), 0))
}

// ether is a frame to the node, or from it if it is OVN's; mostly.
func (m *frameMaker) ether(proto uint16, payload []byte) []byte {
	dst, src := nodeMAC, peerMAC
	if m.out {
		dst, src = peerMAC, nodeMAC
		if m.rarely(6) {
			src = otherMAC
		}
	}
	if m.rarely(5) {
		dst = pick(m, allMAC, groupMAC, otherMAC, net.HardwareAddr{0x01, 0, 0x5e, 0, 0, 1})
	}
	return ether(dst, src, proto, payload)
}

func (m *frameMaker) arp() []byte {
	of := []netip.Addr{v4.node, v4.second, v4.remote, v4.foreign, v4.vip, encap, netip.IPv4Unspecified()}
	return arpPacket(pick[uint16](m, 1, 1, 1, 2, 3), pick(m, of...), pick(m, of...))
}

func (m *frameMaker) neighbour() []byte {
	body := neighbour(pick[uint8](m, 132, 133, 134, 135, 135, 135, 136, 137, 138),
		pick(m, v6.node, v6.second, v6.remote, v6.vip, grLLA))
	next := uint8(protoICMPv6)
	if m.rarely(4) {
		next, body = m.extension(next, body)
	}
	return m.ip(m.source(), pick(m, v6.node, grLLA, netip.MustParseAddr("ff02::1"), v6.foreign), next, body)
}

// tunnel is Geneve, of which node or which tunnel address ever.
func (m *frameMaker) tunnel() []byte {
	src, dst := m.remote, pick(m, encap, encap, m.node, m.second, m.foreign)
	if m.out {
		src, dst = dst, src
	}
	return m.ip(src, dst, protoUDP, udp(m.port(), 6081, make([]byte, m.IntN(40))...))
}

// part is a fragment of one of a few datagrams, some of OVN's and some of the host's.
func (m *frameMaker) part() []byte {
	id, offset := uint16(1+m.IntN(4)), pick(m, 0, 0, 24, 1480)
	if m.rarely(4) {
		return m.fragment(m.icmp, id, offset, m.rarely(2), m.pong(7))
	}
	return m.fragment(protoUDP, id, offset, !m.rarely(3), udp(53, pick[uint16](m, 22, 30053, 50000, udpPort), make([]byte, 16)...))
}

// any is an address of this family that means something here.
func (m *frameMaker) any() netip.Addr {
	if m.node.Is4() {
		return pick(m, m.node, m.second, m.vip, m.remote, m.foreign, m.pod, m.clusterIP, encap,
			netip.MustParseAddr("224.0.0.1"), netip.IPv4Unspecified())
	}
	return pick(m, m.node, m.second, m.vip, m.remote, m.foreign, m.pod, m.clusterIP, grLLA,
		netip.MustParseAddr("ff02::1"), netip.IPv6Unspecified())
}

func (m *frameMaker) ours() netip.Addr {
	if !m.node.Is4() && m.rarely(50) {
		return netip.AddrFrom16(v4.node.As16()) // IPv4-mapped
	}
	if m.rarely(3) {
		return m.any()
	}
	return m.node
}

func (m *frameMaker) theirs() netip.Addr {
	if m.rarely(4) {
		return m.any()
	}
	return pick(m, m.remote, m.remote, m.foreign, m.node)
}

func (m *frameMaker) source() netip.Addr {
	if m.out {
		return m.ours()
	}
	return m.theirs()
}

func (m *frameMaker) dest() netip.Addr {
	if m.out {
		return m.theirs()
	}
	return m.ours()
}

func (m *frameMaker) port() uint16 {
	if m.rarely(8) {
		return uint16(m.Uint32())
	}
	return pick[uint16](m, 0, 1, 2, 22, 443, 4000, 6080, 6081, 6081, 6082, 30053, 30079, 30080, 30081,
		49151, 49152, 50000, listenPort, listenPort, udpPort, 60000, 65535)
}

func (m *frameMaker) peerPort() uint16 {
	if m.rarely(2) && len(m.clients) > 0 {
		return pick(m, m.clients...)
	}
	return m.port()
}

// packet is an IP packet without its Ethernet header; depth counts quotes.
func (m *frameMaker) packet(src, dst netip.Addr, depth int) []byte {
	proto, body := m.transport(depth)
	if m.node.Is4() {
		return m.packet4(src, dst, proto, body)
	}
	return m.packet6(src, dst, proto, body)
}

func (m *frameMaker) packet4(src, dst netip.Addr, proto uint8, body []byte) []byte {
	h := ip4Header{src: src, dst: dst, proto: proto, id: uint16(1 + m.IntN(3))}
	if m.rarely(4) {
		h.frag = pick[uint16](m, 0x2000, 0x2000, 0x2003, 0x0003, 0x0003, 0x4000, 0x8000, 0x6000)
	}
	if m.rarely(8) {
		h.options = make([]byte, 4*(1+m.IntN(10)))
	}
	b := ip4(h, body)
	if m.rarely(60) {
		b[0] = pick[byte](m, 0x44, 0x40, 0x55, 0x65)
	}
	return b
}

func (m *frameMaker) packet6(src, dst netip.Addr, next uint8, body []byte) []byte {
	if m.rarely(3) {
		for range m.IntN(pick(m, 2, 3, 10)) {
			next, body = m.extension(next, body)
		}
	}
	b := ip6(src, dst, next, body)
	if m.rarely(60) {
		b[0] = pick[byte](m, 0x40, 0x50, 0x00)
	}
	return b
}

// extension puts an IPv6 extension header before body and returns its number.
func (m *frameMaker) extension(next uint8, body []byte) (uint8, []byte) {
	switch kind := pick[uint8](m, 0, 43, 44, 44, 51, 60); kind {
	case 44:
		flags := pick[uint16](m, 0, 1, 1, 6, 7, 24, 24, 25)
		return kind, join([]byte{next, 0}, be16(flags), be32(uint32(1+m.IntN(3))), body)
	case 51:
		words := 1 + m.IntN(3)
		return kind, join([]byte{next, byte(words)}, make([]byte, 4*words+6), body)
	default:
		return kind, extension(next, m.IntN(3), body)
	}
}

func (m *frameMaker) transport(depth int) (proto uint8, body []byte) {
	payload := make([]byte, m.IntN(24))
	near, far := m.peerPort(), m.port() // as seen from a packet's source
	if m.out || depth > 0 {
		near, far = far, near
	}
	switch m.IntN(10) {
	case 0, 1, 2:
		b := tcp(near, far, uint8(m.IntN(64)), payload...)
		if m.rarely(10) {
			b = b[:7+m.IntN(10)]
		}
		return protoTCP, b
	case 3, 4:
		return protoUDP, udp(near, far, payload...)
	case 5:
		return protoSCTP, sctp(near, far)
	case 6:
		return pick[uint8](m, protoGRE, protoGRE, 50, 59, 0, protoICMP, protoICMPv6, uint8(m.IntN(256))), payload
	}
	return m.icmp, m.message(depth)
}

// message is one of ICMP, an error with what it is about at times.
func (m *frameMaker) message(depth int) []byte {
	id := uint16(7 + m.IntN(2))
	switch n := m.IntN(8); {
	case n < 2:
		return m.ping(id)
	case n < 4:
		return m.pong(id)
	case n == 4 || depth > 0:
		return join([]byte{uint8(m.IntN(256)), 0, 0, 0}, be16(id), make([]byte, 2+m.IntN(30)))
	}
	quoted := m.packet(m.ours(), m.theirs(), depth+1)
	if m.rarely(3) {
		quoted = quoted[:m.IntN(len(quoted)+1)]
	}
	return m.icmpError(pick(m, m.unreach, m.tooBig, m.expire, 5, 12, 4), m.tooBigCode, quoted)
}
