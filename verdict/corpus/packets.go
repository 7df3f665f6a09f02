package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// tunnel returns a Geneve packet to a random node or tunnel address.
func (g *Generator) tunnel() []byte {
	g.family = pick(g, V4, V4, V6)
	f := g.family

	src, dst := pick(g, f.Remote, f.Peer), pick(g, f.Encap, f.Encap, f.Node, f.Second, f.Foreign)
	if g.dir != verdict.FromWire {
		src, dst = dst, src
	}

	return IP{Src: src, Dst: dst, L4: UDP(g.port(), genevePort, make([]byte, g.rng.IntN(40))...)}.Bytes()
}

func (g *Generator) bfd() []byte {
	return IP{Src: g.source(), Dst: g.dest(), L4: UDP(g.port(), bfdPort, make([]byte, 24)...)}.Bytes()
}

// rare returns packets that random generation seldom produces. Where a packet is from OVN or the
// host, source and destination are exchanged.
func (g *Generator) rare() []byte {
	f := g.family
	p := IP{Src: f.Remote, Dst: f.Node}

	switch g.rng.IntN(6) {
	case 0: // a too-big error about the reply of a Service
		reply := pick(g, TCP(vipPort, 53, ACK), TCP(vipHosted, 53, ACK), UDP(53, 53))
		p.Dst, p.L4 = f.VIP, f.TooBig(f.Sent(f.VIP, reply))
	case 1: // a connection that was taken over
		p.L4 = pick(g, TCP(443, takenPort, g.flags()), UDP(443, takenPort), SCTP(443, takenPort))
	case 2: // a client of the host's UDP socket
		p.L4 = UDP(pick[uint16](g, 53, 54), udpSocket)
	case 3: // the node to itself, at a TCP socket
		p.Src, p.L4 = f.Node, TCP(tcpClient, tcpSocket, g.flags())
	case 4: // the node to its own node ports
		p.Src = f.Node
		p.L4 = pick(g, TCP(connected, nodePort, g.flags()), UDP(udpPeer, nodePortU), UDP(udpPeer, nodePortV))
	default: // a too-big error about a tunnel packet
		p.Src, p.L4 = f.Peer, f.TooBig(f.Sent(f.Node, UDP(snatPort, genevePort)))
	}

	if g.dir != verdict.FromWire {
		p.Src, p.Dst = p.Dst, p.Src
	}

	return p.Bytes()
}

// fragmentOfDatagram returns a fragment of one of a few datagrams. Some belong to OVN, some to the host.
func (g *Generator) fragmentOfDatagram() []byte {
	f := g.family

	p := IP{
		Src: pick(g, f.Remote, f.Remote, f.Remote, f.Foreign),
		Dst: pick(g, f.Node, f.Node, f.Node, f.VIP, f.Second, f.Foreign, f.InnerVIP, f.InnerVIP),
		L4:  UDP(53, pick[uint16](g, sshPort, nodePortU, snatPort, udpSocket, vipPort), make([]byte, 16)...),
		Fragment: &Fragment{
			ID:     uint32(fragOVN + g.rng.IntN(7)),
			Offset: pick[uint16](g, 0, 0, 24, 1480),
			More:   !g.oneIn(3),
		},
	}
	if g.dir != verdict.FromWire {
		p.Src, p.Dst = p.Dst, p.Src
	}

	if g.oneIn(4) {
		p.L4 = f.Pong(askedID)
	}

	return p.Bytes()
}

// knownAddress returns an address of the family that has a meaning on some node.
func (g *Generator) knownAddress() netip.Addr {
	f := g.family

	of := []netip.Addr{
		f.Node, f.Second, f.Former, f.Management, f.VIP, f.Egress, f.Peer, f.Remote, f.Foreign,
		f.Pod, f.Routable, f.ClusterIP, f.Masquerade, f.Encap, f.inner(g.rng.IntN(10)),
	}
	if f.v6() {
		return pick(g, append(of, routerLLA, hostLLA, allNodes, netip.IPv6Unspecified())...)
	}

	return pick(g, append(of, allHosts, netip.IPv4Unspecified())...)
}

// nodeSide returns an address for the side of the node, mostly the node's.
func (g *Generator) nodeSide() netip.Addr {
	if g.family.v6() && g.oneIn(50) {
		return netip.AddrFrom16(V4.Node.As16()) // IPv4-mapped
	}

	if g.oneIn(3) {
		return g.knownAddress()
	}

	return g.family.Node
}

// remoteSide returns an address for the other side.
func (g *Generator) remoteSide() netip.Addr {
	f := g.family
	if g.oneIn(4) {
		return g.knownAddress()
	}

	if g.dir == verdict.FromHost && g.oneIn(2) {
		return pick(g, f.ClusterIP, f.Masquerade)
	}

	return pick(g, f.Remote, f.Remote, f.Remote, f.Foreign, f.Peer, f.Node, f.inner(g.rng.IntN(10)))
}

func (g *Generator) source() netip.Addr {
	if g.dir == verdict.FromWire {
		return g.remoteSide()
	}

	return g.nodeSide()
}

func (g *Generator) dest() netip.Addr {
	if g.dir == verdict.FromWire {
		return g.nodeSide()
	}

	return g.remoteSide()
}

// port returns a port of this node.
func (g *Generator) port() uint16 {
	if g.oneIn(8) {
		return uint16(g.rng.Uint32())
	}

	return pick[uint16](g, 0, 1, 2, sshPort, vipPort, vipHosted, bfdPort, 4000, 6080, genevePort, genevePort, genevePort+1,
		nodePortU, nodePort-1, nodePort, nodePort+1, hostedPort, takenPort, takenPort, hostPort,
		49151, 49152, snatPort, snatPort, tcpSocket, tcpSocket, udpSocket, udpSocket, staleGate, 65535)
}

// farPort returns a port of the remote side.
func (g *Generator) farPort() uint16 {
	if g.oneIn(3) {
		return g.port()
	}

	return pick[uint16](g, 53, 53, 54, 443, 443, tcpClient, genevePort)
}

// packet returns an IP packet; depth counts quotes.
func (g *Generator) packet(src, dst netip.Addr, depth int) []byte {
	p := IP{Src: src, Dst: dst, L4: g.transport(depth), Fragment: g.fragment()}
	if !g.family.v6() {
		if g.oneIn(8) {
			p.Options = make([]byte, 4*(1+g.rng.IntN(10)))
		}

		// Headers of 16 and 0 bytes, version 5, version 6.
		return g.mayMangleVersion(p.Bytes(), 0x44, 0x40, 0x55, 0x65)
	}

	if g.oneIn(3) {
		p.Ext = g.extensions(pick(g, 2, 3, 6))
	}

	return g.mayMangleVersion(p.Bytes(), 0x40, 0x50, 0x00) // versions 4, 5 and 0
}

// mayMangleVersion sometimes writes one of the values into the first byte, which has the IP version
// and, for IPv4, the length of the header.
func (g *Generator) mayMangleVersion(b []byte, values ...byte) []byte {
	if g.options.Mangle && g.oneIn(60) {
		b[0] = pick(g, values...)
	}

	return b
}

func (g *Generator) fragment() *Fragment {
	if !g.oneIn(8) {
		return nil
	}

	return &Fragment{ID: uint32(1 + g.rng.IntN(3)), Offset: pick[uint16](g, 0, 0, 0, 24), More: !g.oneIn(3)}
}

// extensions returns fewer than n headers. If frames may be mangled, there may be more than the
// model reads, and fragment headers of any kind.
func (g *Generator) extensions(n int) []Ext {
	if g.options.Mangle && g.oneIn(4) {
		n = 10
	}

	var list []Ext

	for range g.rng.IntN(n) {
		switch g.rng.IntN(5) {
		case 0:
			list = append(list, HopByHop(uint8(g.rng.IntN(3))))
		case 1:
			list = append(list, Routing(uint8(g.rng.IntN(3))))
		case 2:
			list = append(list, Auth(uint8(1+2*g.rng.IntN(2))))
		case 3:
			if g.options.Mangle {
				flags := pick[uint16](g, 0, 1, 1, 6, 7, 24, 24, 25)
				list = append(list, Ext{extFragment, 0, join(be16(flags), be32(uint32(1+g.rng.IntN(3))))})
			}
		default:
			list = append(list, DestOpts(uint8(g.rng.IntN(3))))
		}
	}

	return list
}

func (g *Generator) transport(depth int) L4 {
	payload := make([]byte, g.rng.IntN(24))
	if g.oneIn(20) {
		payload = make([]byte, 150+g.rng.IntN(1500))
	}

	sport, dport := g.farPort(), g.port()
	if g.dir != verdict.FromWire || depth > 0 {
		sport, dport = dport, sport
	}

	switch g.rng.IntN(10) {
	case 0, 1, 2:
		l4 := TCP(sport, dport, g.flags(), payload...)
		if g.options.Mangle && g.oneIn(10) {
			l4.Data = l4.Data[:7+g.rng.IntN(10)]
		}

		return l4
	case 3, 4:
		return UDP(sport, dport, payload...)
	case 5:
		return SCTP(sport, dport)
	case 6:
		return g.portless(payload)
	}

	return g.icmpMessage(depth)
}

func (g *Generator) flags() uint8 {
	if g.oneIn(2) {
		return pick[uint8](g, ACK, ACK, SYN)
	}

	return uint8(g.rng.IntN(64))
}

func (g *Generator) portless(payload []byte) L4 {
	if g.options.Mangle && g.oneIn(4) {
		return L4{uint8(g.rng.IntN(256)), payload}
	}

	other := uint8(ProtoICMPv6) // the other family's
	if g.family.v6() {
		other = ProtoICMP
	}

	return pick(g, GRE(), GRE(), ESP(), ESP(), L4{ProtoOSPF, payload}, L4{ProtoVRRP, payload}, L4{ProtoPIM, payload},
		L4{other, make([]byte, 16)})
}

// icmpMessage returns an ICMP message. An error may quote a packet.
func (g *Generator) icmpMessage(depth int) L4 {
	f, id := g.family, pick[uint16](g, askedID, askedID, askedID+1, expiredID)
	switch n := g.rng.IntN(8); {
	case n < 2:
		return f.Ping(id)
	case n < 4:
		return f.Pong(id)
	case n == 4 || depth > 0:
		return f.ICMP(g.icmpType(), 0, uint32(id)<<16, make([]byte, 32))
	}

	quote := g.packet(g.nodeSide(), g.remoteSide(), depth+1)
	if g.oneIn(3) {
		quote = quote[:g.rng.IntN(len(quote)+1)]
	}

	const redirect = 5 // of ICMPv4; ICMPv6 has no type 5

	return pick(g, f.Unreachable(quote), f.TooBig(quote), f.TooBig(quote), f.Expired(quote), f.Parameter(quote),
		f.ICMP(redirect, f.tooBigCode, 0, quote), f.ICMP(f.unreachable, 1, 0, quote))
}

// icmpType returns a type other than those of neighbour discovery (133 to 137), which has its own
// functions.
func (g *Generator) icmpType() uint8 {
	for {
		if t := uint8(g.rng.IntN(256)); t < 133 || t > 137 {
			return t
		}
	}
}
