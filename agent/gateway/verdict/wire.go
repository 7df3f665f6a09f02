package verdict

import (
	"net/netip"
	"time"
)

const (
	arpRequest = 1
	arpReply   = 2

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

func (m Model) fromWire(f *Frame, now time.Duration) Decision {
	switch {
	case f.Tagged: // another network, though it may use the same addresses
		return Decision{Reason: VLAN}
	case f.Dst != m.Config.NodeMAC && !f.Dst.group():
		return Decision{Reason: OtherMAC}
	case f.Type != etherARP && f.Type != etherIPv4 && f.Type != etherIPv6:
		return Decision{Reason: NotIP}
	case !f.Whole, f.IP.mapped(f.IP.Dst):
		return Decision{Reason: Malformed}
	case f.Type == etherARP:
		return Decision{Reason: m.arp(&f.ARP)}
	case f.IP.neighbour():
		return Decision{Reason: m.neighbour(&f.IP)}
	}
	p := &f.IP
	d := Decision{Reason: m.ip(p, f.Dst.group(), now)}
	if p.Position == First { // the later ones follow; an id may be used again
		if d.Verdict() == Host {
			d.Forget = datagram(p)
		} else {
			d.Remember = datagram(p)
		}
	}
	return d
}

func (m Model) arp(a *ARP) Reason {
	switch {
	case a.Op == arpReply:
		return ARPReply
	case a.Op != arpRequest:
		return ARPOther
	case m.host(a.Target):
		return ARPRequest
	case a.Sender == a.Target:
		return ARPGratuitous
	}
	return ARPOther
}

func (m Model) neighbour(p *Packet) Reason {
	switch {
	case p.ICMPType == icmp6Advert:
		return NDAdvert
	case p.ICMPType == icmp6RouterAdvert:
		return RouterAdvert
	case p.ICMPType != icmp6Solicit:
		return NDOther
	case !p.Target.IsValid():
		return Malformed
	case m.host(p.Target):
		return NDSolicit
	case p.Target == m.routerLinkLocal():
		return NDSolicitOVN
	}
	return NDOther
}

// ip decides what is no neighbour discovery; group: its frame is to many.
func (m Model) ip(p *Packet, group bool, now time.Duration) Reason {
	geneve := p.Position != Later && p.Proto == protoUDP && p.DstPort == m.Config.GenevePort
	switch {
	case geneve && m.encap(p.Dst):
		return GeneveOVN
	case geneve && m.host(p.Dst):
		return Geneve
	case group:
		return Multicast
	case p.V6 && p.Dst == m.routerLinkLocal() && !m.host(p.Dst):
		return OVNAddress
	case p.Position == Later:
		return m.laterFragment(p, now)
	case hasPorts(p.Proto):
		return m.byPort(p, false)
	case p.icmp():
		return m.byICMP(p, now)
	case m.node(p.Dst) && m.asked(p, now):
		return ProtoNS
	}
	return m.unclaimed(p)
}

// unclaimed is what OVN lays no claim to.
func (m Model) unclaimed(p *Packet) Reason {
	if m.host(p.Dst) {
		return Default
	}
	return NotOurs
}

func (m Model) laterFragment(p *Packet, now time.Duration) Reason {
	if last, ok := m.Tables.Frags[*datagram(p)]; ok && now-last < FragmentTimeout {
		return FragmentOVN
	}
	if m.host(p.Dst) {
		return Fragment
	}
	return NotOurs
}

// byPort decides by the local port. quoted: p is what an ICMP error quotes,
// turned round.
func (m Model) byPort(p *Packet, quoted bool) Reason {
	switch {
	case m.Tables.Services[ServiceKey{Addr: p.Dst, Proto: p.Proto, Port: p.DstPort}]:
		return Service
	case !m.node(p.Dst) || !m.snat(p.DstPort):
		return m.unclaimed(p)
	case !quoted && p.Proto == protoTCP && p.Flags&(flagFIN|flagSYN|flagRST|flagACK) == flagSYN:
		return SNATSyn
	case m.hostSocket(p):
		return HostSocket
	}
	return SNATPort
}

func (m Model) hostSocket(p *Packet) bool {
	if p.Proto != protoTCP && p.Proto != protoUDP || m.Tables.HostSocket == nil {
		return false
	}
	return m.Tables.HostSocket(Socket{
		Proto:  p.Proto,
		Remote: netip.AddrPortFrom(p.Src, p.SrcPort),
		Local:  netip.AddrPortFrom(p.Dst, p.DstPort),
	})
}

func (m Model) byICMP(p *Packet, now time.Duration) Reason {
	switch {
	case p.icmpError():
		if p.Quote != nil && m.sentByOVN(p.Quote, now) {
			return ICMPErrorOVN
		}
		return ICMPErrorHost
	case p.echoReply() && m.node(p.Dst) && m.asked(p, now):
		return ICMPEchoReplyNS
	case !m.host(p.Dst):
		return NotOurs
	case p.echoReply():
		return ICMPEchoReply
	case p.echo():
		return ICMPEcho
	}
	return Default
}

// sentByOVN applies the rules to the sender of a quoted packet.
func (m Model) sentByOVN(quote *Packet, now time.Duration) bool {
	q := reversed(quote)
	switch {
	case q.Position == Later, q.mapped(q.Dst):
		return false
	case q.Proto == protoUDP && q.SrcPort == m.Config.GenevePort:
		// its source port is a hash, and no claim to the SNAT range
		return m.encap(q.Dst)
	case hasPorts(q.Proto):
		return m.byPort(q, true).Verdict() == OVN
	}
	return m.node(q.Dst) && (!q.icmp() || q.echo()) && m.asked(q, now)
}
