package campaign

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Every IP frame of an attacker contains a mark of eight bytes. A mark at a receiver proves
// delivery.
const (
	magic       = "HOSTILE!"
	fencedMagic = "FENCED!!" // of pods whose egress policy forbids all that they send

	// partMagic marks a fragment without its other parts, see wire.parts.
	partMagic = "APART-OF"
)

// Protocols and types of ICMP that the campaign makes itself.
const (
	protoVRRP, protoOSPF   = 112, 89
	wirePort, wirePortBack = 51820, 51821 // of WireGuard servers on the node and outside
	etherDouble            = 0x88a8
)

// attacker generates frames with a true location and false addresses.
type attacker struct {
	r        *rand.Rand
	mark     string
	own      verdict.MAC
	to       []verdict.MAC // destinations
	sources  []netip.Addr  // claimed source addresses, starting with its own, of both families
	targets  []netip.Addr
	claims   []netip.Addr // addresses that it claims by neighbour discovery
	hosts    []netip.Addr // hosts whose flows its ICMP errors quote
	peers    []netip.Addr // peers with flows to the hosts
	tags     bool         // VLAN tags
	sport    uint16       // sweeps cover all values
	id       uint16
	protocol uint8
}

// newAttacker starts its sweeps at OVN's first port.
func newAttacker(seed uint64, mark string) *attacker {
	return &attacker{r: rand.New(rand.NewPCG(seed, 1)), mark: mark, sport: 49152}
}

func (a *attacker) one(of []netip.Addr, v6 bool) netip.Addr {
	for {
		if addr := of[a.r.IntN(len(of))]; addr.Is6() == v6 {
			return addr
		}
	}
}

// frame returns the next frame.
func (a *attacker) frame() []byte {
	v6 := a.r.IntN(3) == 0

	src, dst := a.one(a.sources, v6), a.one(a.targets, v6)
	if a.r.IntN(2) == 0 { // its own address, as spoofed ones are often dropped early
		for _, s := range a.sources {
			if s.Is6() == v6 {
				src = s
				break
			}
		}
	}

	var b []byte

	switch a.r.IntN(16) {
	case 0:
		b = a.neighbour(src, dst)
	default:
		p := corpus.IP{Src: src, Dst: dst, L4: a.l4(src, dst)}
		a.shape(&p)

		if p.Fragment != nil && (p.Fragment.More || p.Fragment.Offset > 0) {
			p.L4 = a.summed(corpus.L4{Proto: p.L4.Proto, Data: bytes.ReplaceAll(p.L4.Data, []byte(a.mark), []byte(partMagic))}, src, dst)
		}

		b = p.Frame(a.next(), a.own)
	}

	if a.tags && a.r.IntN(10) == 0 {
		b = a.tag(b)
	}

	return b
}

// next returns the destination of the next frame.
func (a *attacker) next() verdict.MAC { return a.to[a.r.IntN(len(a.to))] }

// tag adds VLAN 0, another VLAN, or two tags.
func (a *attacker) tag(b []byte) []byte {
	priority := uint16(a.r.IntN(8)) << 13
	switch a.r.IntN(3) {
	case 0:
		return corpus.Tag(priority, b)
	case 1:
		return corpus.Tag(priority|uint16(a.r.IntN(4095)), b)
	}

	outer := corpus.Tag(priority, corpus.Tag(uint16(a.r.IntN(4095)), b))
	binary.BigEndian.PutUint16(outer[12:], etherDouble)

	return outer
}

// neighbour returns ARP or neighbour discovery for a false address.
func (a *attacker) neighbour(src, dst netip.Addr) []byte {
	if src.Is4() {
		sender := a.sources[0]
		if a.r.IntN(2) == 0 {
			sender = a.one(a.claims, false)
		}

		return corpus.Ether(a.next(), a.own, corpus.EtherARP, corpus.ARP(uint16(1+a.r.IntN(2)), a.own, sender, dst))
	}

	l4 := corpus.Solicit(dst)
	if a.r.IntN(2) == 0 {
		// Its own address, or one of the cluster. Taking over a neighbour's address is possible on any
		// link, with any gateway.
		l4 = corpus.Advert(a.one(a.claims, true), a.r.IntN(2) == 0)
	}

	return corpus.IP{Src: src, Dst: dst, L4: a.summed(l4, src, dst), TTL: 255}.Frame(a.next(), a.own)
}

// l4 returns a payload with the mark.
func (a *attacker) l4(src, dst netip.Addr) corpus.L4 {
	var l corpus.L4

	ports := []uint16{22, 53, podPort, hostPort, outsidePort, servicePort, nodePort, 6081, 6443, wirePort, wirePortBack, 2379, 10250, uint16(a.r.Uint32())}

	dport := ports[a.r.IntN(len(ports))]
	switch a.r.IntN(8) {
	case 0, 1: // sweeps source ports
		if a.sport++; a.sport < 49152 {
			a.sport = 49152
		}

		l = corpus.UDP(a.sport, []uint16{wirePort, wirePortBack, dport}[a.r.IntN(3)], []byte(a.mark)...)
	case 2:
		l = corpus.TCP(ports[a.r.IntN(len(ports))], dport, uint8(a.r.IntN(64)), []byte(a.mark)...)
	case 3:
		l = corpus.UDP(dport, ports[a.r.IntN(len(ports))], []byte(a.mark)...)
	case 4: // sweeps identifiers
		a.id++

		f := corpus.V4
		if src.Is6() {
			f = corpus.V6
		}

		l = f.Ping(a.id)
		if a.r.IntN(3) == 0 {
			l = f.Pong(a.id)
		}

		copy(l.Data[8:], a.mark)
	case 5:
		l = a.icmpError(src.Is6())
	case 6: // routing protocols
		l = corpus.L4{Proto: []uint8{protoVRRP, protoOSPF}[a.r.IntN(2)], Data: []byte(a.mark + a.mark)}
	default: // every protocol
		a.protocol++
		l = corpus.L4{Proto: a.protocol, Data: []byte(a.mark + a.mark + a.mark)}
	}

	return a.summed(l, src, dst)
}

// icmpError returns an error that quotes a packet from the host to one of its peers.
func (a *attacker) icmpError(v6 bool) corpus.L4 {
	src, dst := a.one(a.hosts, v6), a.one(a.peers, v6)
	quoted := []corpus.L4{
		corpus.UDP(wirePort, wirePort, []byte(a.mark)...), corpus.UDP(wirePortBack, wirePortBack, []byte(a.mark)...),
		corpus.TCP(sshPort, uint16(a.r.Uint32()), corpus.ACK, []byte(a.mark)...),
		{Proto: protoVRRP, Data: []byte(a.mark)},
		{Proto: protoOSPF, Data: []byte(a.mark)},
	}
	quote := corpus.IP{Src: src, Dst: dst, L4: quoted[a.r.IntN(len(quoted))]}.Bytes()

	f, codes := corpus.V4, 16
	if v6 {
		f, codes = corpus.V6, 7
	}

	l := []corpus.L4{f.Unreachable(quote), f.Expired(quote), f.Parameter(quote), f.TooBig(quote)}[a.r.IntN(4)]
	if a.r.IntN(2) == 0 && l.Data[1] != 4 {
		l.Data[1] = uint8(a.r.IntN(codes))
	}

	return l
}

// shape turns some packets into fragments, or adds options and extension headers.
func (a *attacker) shape(p *corpus.IP) {
	switch a.r.IntN(10) {
	case 0: // a later, a first, and an only fragment
		p.Fragment = &corpus.Fragment{ID: uint32(a.r.IntN(64)), Offset: uint16(a.r.IntN(4)) * 8, More: a.r.IntN(2) == 0}
	case 1:
		if p.Src.Is4() {
			p.Options = bytes.Repeat([]byte{1}, 4*a.r.IntN(11))
			return
		}

		for range 1 + a.r.IntN(3) {
			p.Ext = append(p.Ext, []corpus.Ext{corpus.DestOpts(0), corpus.DestOpts(3), corpus.HopByHop(0), corpus.Routing(1), corpus.Auth(2)}[a.r.IntN(5)])
		}
	case 2:
		p.TTL = uint8(1 + a.r.IntN(2))
	}
}

// summed sets the checksum where receivers verify it.
func (a *attacker) summed(l corpus.L4, src, dst netip.Addr) corpus.L4 {
	at, pseudo := -1, true

	switch l.Proto {
	case corpus.ProtoTCP:
		at = 16
	case corpus.ProtoUDP:
		at = 6
	case corpus.ProtoICMP:
		at, pseudo = 2, false
	case corpus.ProtoICMPv6:
		at = 2
	}

	if at < 0 || len(l.Data) < at+2 {
		return l
	}

	l.Data[at], l.Data[at+1] = 0, 0

	var b []byte
	if pseudo {
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
		b = append(b, 0, l.Proto)
		b = binary.BigEndian.AppendUint16(b, uint16(len(l.Data)))
	}

	binary.BigEndian.PutUint16(l.Data[at:], sum(append(b, l.Data...)))

	return l
}
