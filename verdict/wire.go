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

// foreign reports whether f belongs to another network, which may use the same addresses. A
// priority tag (VLAN 0) does not count as a tag.
func (m Model) foreign(f *Frame) bool {
	if m.Config.VLAN == 0 {
		return f.Tagged && !f.Priority
	}

	return !m.ourTag(f)
}

// ourTag reports whether f has the gateway network's tag, and no second one.
func (m Model) ourTag(f *Frame) bool {
	return m.Config.VLAN != 0 && f.VID == m.Config.VLAN && !isTag(f.Type)
}

func isTag(etherType uint16) bool { return etherType == etherVLAN || etherType == etherQinQ }

func (m Model) fromWire(f *Frame, now time.Duration) Decision {
	untagged := !f.Tagged || f.Priority
	toUs := f.Dst == m.Config.NodeMAC || f.Dst.group()

	switch {
	case f.Priority && isTag(f.Type):
		return Decision{Reason: NestedTag}
	case m.foreign(f) && (!untagged || !toUs):
		return Decision{Reason: VLAN}
	case toUs && m.spoofed(f):
		return Decision{Reason: SpoofedSource}
	case m.foreign(f) && m.entersInternal(f): // the host's stack accepts untagged packets
		return Decision{Reason: ClusterDestination}
	case m.foreign(f):
		return Decision{Reason: VLAN}
	case !toUs:
		return Decision{Reason: OtherMAC}
	}

	d := m.admitted(f, now)
	if m.entersInternal(f) && !m.reachesListener(d.Reason, f.IP.Dst) {
		d.Reason = ClusterDestination
	}

	if d.Remember != nil { // later fragments follow; an ID may be reused
		d.RememberAs = d.Verdict()
	}

	return d
}

// admitted decides packets of the gateway's network that are not spoofed.
func (m Model) admitted(f *Frame, now time.Duration) Decision {
	switch {
	case f.Type != etherARP && !isIP(f):
		return Decision{Reason: NotIP}
	case !f.Whole, f.IP.mapped(f.IP.Dst):
		return Decision{Reason: Malformed}
	case f.Type == etherARP:
		return Decision{Reason: m.arp(&f.ARP)}
	case f.IP.isNeighbourDiscovery():
		return Decision{Reason: m.neighbour(&f.IP)}
	}

	p := &f.IP

	d := Decision{Reason: m.ip(p, f.Dst.group(), now)}
	if p.Position == First {
		d.Remember = p.Datagram()
	}

	if d.Reason == Takeover { // the agent reads the entry's age to detect that it has ended
		k := p.Flow()
		d.LearnFlow = &k
	}

	return d
}

func (m Model) arp(a *ARP) Reason {
	if a.Op == arpReply {
		return ARPReply
	}

	if a.Op != arpRequest {
		return ARPOther
	}

	switch m.kind(a.Target) {
	case AddrVIP:
		return ARPVIP
	case AddrHost:
		return ARPRequest
	case AddrOVN:
		return ARPRequestOVN
	}

	if a.Sender == a.Target {
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
	}

	switch m.kind(p.Target) {
	case AddrVIP:
		return NDVIP
	case AddrHost:
		return NDSolicit
	case AddrOVN:
		return NDSolicitOVN
	}

	return NDOther
}

// ip decides IP packets other than neighbour discovery. group means that the frame's destination is
// a group address.
func (m Model) ip(p *Packet, group bool, now time.Duration) Reason {
	geneve := m.isGeneve(p)
	switch {
	case geneve && m.encap(p.Dst):
		return GeneveOVN
	case geneve && m.host(p.Dst):
		return Geneve
	case group:
		return Multicast
	case contains(m.Config.RoutablePods, p.V6, p.Dst) && !m.host(p.Dst):
		return PodAddress
	case m.kind(p.Dst) == AddrOVN:
		return OVNAddress
	case p.Position == Later:
		return m.laterFragment(p, now)
	case hasPorts(p.Proto):
		return m.byPort(p, false)
	case p.isICMP():
		return m.byICMP(p, now)
	case m.hostProto(p):
		return ProtoHost
	case m.node(p.Dst) && m.asked(p, now):
		return ProtoNS
	}

	return m.unclaimed(p)
}

// unclaimed decides packets that OVN does not claim.
func (m Model) unclaimed(p *Packet) Reason {
	if m.host(p.Dst) {
		return Default
	}

	return NotOurs
}

func (m Model) laterFragment(p *Packet, now time.Duration) Reason {
	if first, ok := m.Tables.Frags[*p.Datagram()]; ok && now-first.Seen < FragmentTimeout {
		switch first.Owner {
		case OVN:
			return FragmentOVN
		case Host:
			return Fragment
		case Drop:
			return ClusterDestination
		}
	}

	if k := m.kind(p.Dst); k == AddrHost || k == AddrVIP {
		return FragmentEarly
	}

	return NotOurs
}

// byPort decides by the local port. quoted means that p is the reversed quote of an ICMP error.
func (m Model) byPort(p *Packet, quoted bool) Reason {
	owner := m.Tables.Services[ServiceKey{Addr: p.Dst, Proto: p.Proto, Port: p.DstPort}]
	begins := !quoted && p.Proto == protoTCP && p.Flags&(flagFIN|flagSYN|flagRST|flagACK) == flagSYN

	switch {
	case owner != ServiceNone && m.Config.Local:
		return ServiceLocal
	case owner == ServiceOVN && m.host(p.Dst) && m.hostConnection(p, begins):
		return HostConnection
	case owner == ServiceOVN:
		return Service
	case owner == ServiceHost:
		return ServiceHosted
	case m.node(p.Dst) && !m.Config.Local:
		if m.snat(p.DstPort) {
			return m.inRange(p, begins)
		}

		if _, ok := m.Tables.Flows[p.Flow()]; ok && m.Config.Takeover && !begins {
			return Takeover
		}
	}

	if m.bfd(p) && m.host(p.Dst) {
		return BFD
	}

	return m.unclaimed(p)
}

// inRange decides packets to the SNAT range. begins means that p opens a connection.
func (m Model) inRange(p *Packet, begins bool) Reason {
	switch {
	case begins:
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

	return m.Tables.HostSocket(Socket(p.Flow()))
}

// hostConnection reports whether p comes from the peer of a connected host socket. begins means
// that p opens a connection, which may replace one in TIME_WAIT.
func (m Model) hostConnection(p *Packet, begins bool) bool {
	if p.Proto != protoTCP && p.Proto != protoUDP || m.Tables.HostConnection == nil {
		return false
	}

	switch m.Tables.HostConnection(Socket(p.Flow())) {
	case Connected:
		return true
	case TimeWait:
		return !begins
	}

	return false
}

// hostProto reports whether p may belong to the host. The source of p is the remote side.
func (m Model) hostProto(p *Packet) bool {
	one := NSKey{Remote: p.Src, Proto: p.Proto}
	every := NSKey{Remote: AnyRemote(p.V6), Proto: p.Proto}

	return m.node(p.Dst) && (m.Tables.HostProtos[one] || m.Tables.HostProtos[every])
}

// AnyRemote returns the wildcard remote of a protocol that the host uses with any peer: it has an
// unconnected raw socket.
func AnyRemote(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}

	return netip.IPv4Unspecified()
}

// bfd reports whether p belongs to a BFD session. BFD packets are too short to be fragmented.
func (m Model) bfd(p *Packet) bool {
	return m.Config.BFD && p.Proto == protoUDP && p.DstPort == bfdPort && p.Position == Unfragmented
}

func (m Model) byICMP(p *Packet, now time.Duration) Reason {
	switch {
	case p.isICMPError():
		return m.icmpError(p, now)
	case p.isEchoReply() && m.node(p.Dst) && m.asked(p, now):
		return ICMPEchoReplyNS
	case !m.host(p.Dst):
		return NotOurs
	case p.isEchoReply():
		return ICMPEchoReply
	case p.isEchoRequest():
		return ICMPEcho
	}

	return Default
}

func (m Model) icmpError(p *Packet, now time.Duration) Reason {
	sender := NotOurs
	if p.Quote != nil {
		sender = m.sender(p.Quote, now)
	}

	switch {
	case sender.Verdict() == OVN:
		return ICMPErrorOVN
	case sender == ICMPEchoReplyNS:
		return ICMPErrorEcho
	case p.isTooBig() && m.kind(p.Dst) == AddrVIP && !m.Config.Local && sender != ServiceHosted:
		return ICMPVIP
	}

	return ICMPErrorHost
}

// sender applies the rules to the sender of a quoted packet.
func (m Model) sender(quote *Packet, now time.Duration) Reason {
	q := quote.Reversed()
	switch {
	case q.Position == Later, q.mapped(q.Dst):
		return NotOurs
	case q.Proto == protoUDP && q.SrcPort == m.Config.GenevePort:
		// Its source port is a hash, and no claim to the SNAT range.
		if m.encap(q.Dst) {
			return GeneveOVN
		}

		return Geneve
	case hasPorts(q.Proto):
		return m.byPort(q, true)
	case !q.isICMP() && m.hostProto(q):
		return ProtoHost
	case m.node(q.Dst) && !q.isICMP() && m.asked(q, now):
		return ProtoNS
	case m.node(q.Dst) && q.isEchoRequest() && m.asked(q, now):
		return ICMPEchoReplyNS
	}

	return NotOurs
}
