package verdict

import (
	"net/netip"
	"time"
)

const (
	arpRequest = 1
	arpReply   = 2

	tcpFlags = 13 // offset of the flags in the TCP header (RFC 9293)

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// fromWire decides packets that arrive at the uplink, in this order:
//
//  1. Packets with a second tag behind a priority tag are dropped.
//  2. Packets of another network, or to another MAC address, are left to the host. But untagged
//     packets of another network to this node must not have internal addresses, because the host's
//     stack accepts them.
//  3. Packets with a spoofed source are dropped.
//  4. All others are decided by admitted.
//  5. Packets to an internal address are dropped, unless they have a listener there. This is last,
//     because the reason of step 4 shows whether they have one.
func (m Model) fromWire(f *Frame, now time.Duration) Decision {
	isUntagged := !f.Tagged || f.Priority
	isToUs := f.Dst == m.Config.NodeMAC || f.Dst.isGroup()

	switch {
	case f.Priority && isTag(f.Type):
		return Decision{Reason: NestedTag}
	case m.isForeign(f) && (!isUntagged || !isToUs):
		return Decision{Reason: VLAN}
	case isToUs && m.isSpoofed(f):
		return Decision{Reason: SpoofedSource}
	case m.isForeign(f) && m.entersInternal(f): // the host's stack accepts untagged packets
		return Decision{Reason: ClusterDestination}
	case m.isForeign(f):
		return Decision{Reason: VLAN}
	case !isToUs:
		return Decision{Reason: OtherMAC}
	}

	d := m.admitted(f, now)
	if m.entersInternal(f) && !m.reachesListener(d.Reason, f.IP.Dst) {
		d.Reason = ClusterDestination
	}

	if d.Remember != nil { // also if dropped: later fragments follow, and the ID may be reused
		d.RememberAs = d.Verdict()
	}

	return d
}

// isForeign reports whether f belongs to another network than the gateway's, which may use the same
// addresses. A priority tag (VLAN 0) does not count as a tag.
func (m Model) isForeign(f *Frame) bool {
	if m.Config.VLAN == 0 {
		return f.Tagged && !f.Priority
	}

	return !m.hasOurTag(f)
}

// hasOurTag reports whether f has the gateway network's tag, and no second one.
func (m Model) hasOurTag(f *Frame) bool {
	return m.Config.VLAN != 0 && f.VID == m.Config.VLAN && !isTag(f.Type)
}

func isTag(etherType uint16) bool { return etherType == etherVLAN || etherType == etherQinQ }

// admitted decides packets of the gateway's network to this node that are not spoofed.
func (m Model) admitted(f *Frame, now time.Duration) Decision {
	switch {
	case f.Type != etherARP && !isIP(f):
		return Decision{Reason: NotIP}
	case !f.Whole, f.IP.isMapped(f.IP.Dst):
		return Decision{Reason: Malformed}
	case f.Type == etherARP:
		return Decision{Reason: m.arp(&f.ARP)}
	case f.IP.isNeighbourDiscovery():
		return Decision{Reason: m.neighbour(&f.IP)}
	}

	p := &f.IP

	d := Decision{Reason: m.ip(p, f.Dst.isGroup(), now)}
	if p.Position == First {
		d.Remember = p.Datagram()
	}

	if d.Reason == Takeover { // the agent reads the entry's age to detect that it has ended
		k := p.Flow()
		d.LearnFlow = &k
	}

	return d
}

// arp decides ARP: which side receives it, and so which side may answer. Both receive replies. The
// target's kind precedes the test for an announcement, so an announcement of a local address goes
// where a request for this address goes.
func (m Model) arp(a *ARP) Reason {
	if a.Op == arpReply {
		return ARPReply
	}

	if a.Op != arpRequest {
		return ARPOther
	}

	switch m.kindOf(a.Target) {
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

// neighbour decides neighbour discovery of IPv6, as arp does for IPv4.
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

	switch m.kindOf(p.Target) {
	case AddrVIP:
		return NDVIP
	case AddrHost:
		return NDSolicit
	case AddrOVN:
		return NDSolicitOVN
	}

	return NDOther
}

// ip decides IP packets other than neighbour discovery. The first cases need only the destination
// address. The others need to find out whether OVN or the host has the other end: by the first
// fragment, by the port, by the ICMP message, or by OVN's last packet of the same protocol to the
// sender. group means that the frame's destination is a group address.
func (m Model) ip(p *Packet, group bool, now time.Duration) Reason {
	geneve := m.isGeneve(p)
	switch {
	case geneve && m.isEncap(p.Dst):
		return GeneveOVN
	case geneve && m.isHost(p.Dst):
		return Geneve
	case group:
		return Multicast
	case contains(m.Config.RoutablePods, p.V6, p.Dst) && !m.isHost(p.Dst):
		return PodAddress
	case m.kindOf(p.Dst) == AddrOVN:
		return OVNAddress
	case p.Position == Later:
		return m.laterFragment(p, now)
	case hasPorts(p.Proto):
		return m.byPort(p)
	case p.isICMP():
		return m.byICMP(p, now)
	case m.isHostProto(p):
		return ProtoHost
	case m.isNode(p.Dst) && m.ovnHasBegun(p, now):
		return ProtoNS
	}

	return m.unclaimed(p)
}

// unclaimed decides packets that no rule gives to OVN.
func (m Model) unclaimed(p *Packet) Reason {
	if m.isHost(p.Dst) {
		return Default
	}

	return NotOurs
}

// laterFragment decides a fragment without ports or ICMP type as the first fragment was decided. If
// that is not known, because it has not arrived yet or long ago, both sides get the fragment: the
// wrong one discards it.
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

	if k := m.kindOf(p.Dst); k == AddrHost || k == AddrVIP {
		return FragmentEarly
	}

	return NotOurs
}

// byPort decides packets with ports, by the local port.
func (m Model) byPort(p *Packet) Reason {
	begins := p.Proto == protoTCP && p.Flags&(flagFIN|flagSYN|flagRST|flagACK) == flagSYN

	return m.portOwner(p, begins)
}

// replyByPort decides the reply to a packet as byPort would. reply is the reversed packet. It
// begins no connection, because its flags are those of the packet.
func (m Model) replyByPort(reply *Packet) Reason {
	const begins = false

	return m.portOwner(reply, begins)
}

// portOwner decides by the local port: first frontends of Services, then OVN's own ports, which are
// the SNAT range and the connections in takeover. In local gateway mode, OVN has no ports, and the
// host's stack receives packets to Services. begins means that p opens a connection.
func (m Model) portOwner(p *Packet, begins bool) Reason {
	owner := m.Tables.Services[ServiceKey{Addr: p.Dst, Proto: p.Proto, Port: p.DstPort}]

	switch {
	case owner != ServiceNone && m.Config.Local:
		return ServiceLocal
	case owner == ServiceOVN && m.isHost(p.Dst) && m.isOfHost(p, begins):
		return HostConnection
	case owner == ServiceOVN:
		return Service
	case owner == ServiceHost:
		return ServiceHosted
	case m.isNode(p.Dst) && !m.Config.Local:
		if m.inSNATRange(p.DstPort) {
			return m.inRange(p, begins)
		}

		if _, ok := m.Tables.Flows[p.Flow()]; ok && m.Config.Takeover && !begins {
			return Takeover
		}
	}

	if m.isBFD(p) && m.isHost(p.Dst) {
		return BFD
	}

	return m.unclaimed(p)
}

// inRange decides packets to the SNAT range. OVN opens all of its connections itself, so a packet
// that opens one (begins) is not for OVN.
func (m Model) inRange(p *Packet, begins bool) Reason {
	switch {
	case begins:
		return SNATSyn
	case m.isOfHostSocket(p):
		return HostSocket
	}

	return SNATPort
}

// isOfHostSocket reports whether a host socket owns p.
func (m Model) isOfHostSocket(p *Packet) bool {
	if p.Proto != protoTCP && p.Proto != protoUDP || m.Tables.HostSocket == nil {
		return false
	}

	return m.Tables.HostSocket(Socket(p.Flow()))
}

// isOfHost reports whether p comes from the peer of a connected host socket. begins means that p
// opens a connection: then a former one in TIME_WAIT does not count.
func (m Model) isOfHost(p *Packet, begins bool) bool {
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

// isHostProto reports whether the host itself uses the protocol of p, which has no ports, with the
// source of p or with any peer.
func (m Model) isHostProto(p *Packet) bool {
	withPeer := NSKey{Remote: p.Src, Proto: p.Proto}
	withAny := NSKey{Remote: AnyRemote(p.V6), Proto: p.Proto}

	return m.isNode(p.Dst) && (m.Tables.HostProtos[withPeer] || m.Tables.HostProtos[withAny])
}

// AnyRemote returns the wildcard remote of a protocol that the host uses with any peer: it has an
// unconnected raw socket.
func AnyRemote(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}

	return netip.IPv4Unspecified()
}

// isBFD reports whether p belongs to a BFD session. BFD packets are too short to be fragmented.
func (m Model) isBFD(p *Packet) bool {
	return m.Config.BFD && p.Proto == protoUDP && p.DstPort == bfdPort && p.Position == Unfragmented
}

// byICMP decides ICMP packets other than later fragments and neighbour discovery.
func (m Model) byICMP(p *Packet, now time.Duration) Reason {
	switch {
	case p.isICMPError():
		return m.icmpError(p, now)
	case p.isEchoReply() && m.isNode(p.Dst) && m.ovnHasBegun(p, now):
		return ICMPEchoReplyNS
	case !m.isHost(p.Dst):
		return NotOurs
	case p.isEchoReply():
		return ICMPEchoReply
	case p.isEchoRequest():
		return ICMPEcho
	}

	return Default
}

// icmpError decides ICMP errors. An error is for the sender of the packet that it quotes, so it
// goes where the reply to that packet would go.
func (m Model) icmpError(p *Packet, now time.Duration) Reason {
	reply := NotOurs // reason of the reply
	if p.Quote != nil {
		reply = m.replyTo(p.Quote, now)
	}

	switch {
	case reply.Verdict() == OVN:
		return ICMPErrorOVN
	case reply == ICMPEchoReplyNS: // the host may use the same identifier
		return ICMPErrorEcho
	case p.isTooBig() && m.kindOf(p.Dst) == AddrVIP && !m.Config.Local && reply != ServiceHosted:
		return ICMPVIP
	}

	return ICMPErrorHost
}

// replyTo returns the reason that the reply to a quoted packet would have.
func (m Model) replyTo(quote *Packet, now time.Duration) Reason {
	reply := quote.Reversed()
	switch {
	case reply.Position == Later, reply.isMapped(reply.Dst):
		return NotOurs
	case reply.Proto == protoUDP && reply.SrcPort == m.Config.GenevePort:
		// The tunnel's source port is a hash. It may be in the SNAT range, but is not OVN's.
		if m.isEncap(reply.Dst) {
			return GeneveOVN
		}

		return Geneve
	case hasPorts(reply.Proto):
		return m.replyByPort(reply)
	case !reply.isICMP() && m.isHostProto(reply):
		return ProtoHost
	case m.isNode(reply.Dst) && !reply.isICMP() && m.ovnHasBegun(reply, now):
		return ProtoNS
	case m.isNode(reply.Dst) && reply.isEchoRequest() && m.ovnHasBegun(reply, now):
		return ICMPEchoReplyNS
	}

	return NotOurs
}
