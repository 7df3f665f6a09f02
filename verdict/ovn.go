package verdict

import "net/netip"

// fromOVN decides packets that OVN sends to the uplink. The first rule that applies decides:
//
//  1. packets with a tag that is not the gateway network's: only their MAC address is checked
//  2. packets of tunnels, which have their own addresses and limits
//  3. packets that must go to the host or be dropped whatever their MAC address is, because they
//     never leave the node
//  4. packets with a wrong MAC address: all others may leave
//  5. ARP, neighbour discovery and BFD, which the gateway router itself sends
//  6. packets that are neither ARP nor IP
//  7. IP packets that OVN did not translate as it should
//  8. all other IP packets: leaving
func (m Model) fromOVN(f *Frame) Decision {
	if f.Tagged && !m.hasOurTag(f) {
		return m.withForeignTag(f)
	}

	p := &f.IP
	switch {
	case m.isFromEncap(f):
		return Decision{Reason: EncapOut}
	case m.isForbiddenTunnel(f): // before Hairpin, which would accept a tunnel packet to the host
		return Decision{Reason: PodTunnel}

	case isIP(f) && p.isTooBig() && m.isTo(p, AddrPeer): // would reduce the path MTU of a tunnel
		return Decision{Reason: PMTUD}
	case isIP(f) && (m.isTo(p, AddrHost) || contains(m.Config.ServiceCIDRs, p.V6, p.Src)): // or a Service's reply
		return Decision{Reason: Hairpin}

	case f.Src != m.Config.NodeMAC:
		return Decision{Reason: BadMAC}

	case isIP(f) && f.Whole && m.isBFD(p): // before HostOwned: the source port may be in the SNAT range
		return Decision{Reason: BFDOut}
	case m.isNeighbourOfFormer(f): // before GARPGuard and NeighbourOut, which may let it leave
		return Decision{Reason: Unsnated}
	case !m.Config.InSync && m.announcesOther(f):
		return Decision{Reason: GARPGuard}
	case f.Type == etherARP, isIP(f) && f.Whole && p.isNeighbourDiscovery():
		return Decision{Reason: NeighbourOut}
	case !isIP(f):
		return Decision{Reason: OutPlain}

	case contains(m.Config.ServiceCIDRs, p.V6, p.Dst), contains(m.Config.Masquerade, p.V6, p.Dst):
		return Decision{Reason: SvcLeak}
	case contains(m.Config.PodCIDRs, p.V6, p.Src) && !contains(m.Config.RoutablePods, p.V6, p.Src),
		m.isFromFormer(p):
		return Decision{Reason: Unsnated}
	}

	return m.leaving(f)
}

// withForeignTag decides packets with another tag than the gateway network's, by the MAC address
// alone: the addresses after the tag are those of another network.
func (m Model) withForeignTag(f *Frame) Decision {
	if f.Src != m.Config.NodeMAC {
		return Decision{Reason: BadMAC}
	}

	return Decision{Reason: OutPlain}
}

// leaving decides IP packets that no other rule has stopped. In local gateway mode, two kinds go to
// the host's stack: packets that are too long for the uplink, and packets with ports from the
// node's address. Only packets from the node's address have replies that the gateway must
// recognize.
func (m Model) leaving(f *Frame) Decision {
	p := &f.IP
	fromNode := f.Whole && m.isNode(p.Src) && !p.isMapped(p.Src)

	switch {
	case m.Config.Local && m.Config.MTU > 0 && f.Length > m.Config.MTU:
		return Decision{Reason: Oversized}
	case !fromNode:
		return Decision{Reason: OutPlain}
	case m.Config.Local && hasPorts(p.Proto):
		return Decision{Reason: LocalOut}
	}

	reply := p.Reversed()
	if m.isRepliedToHost(reply) {
		return Decision{Reason: HostOwned}
	}

	// The port does not identify these replies, so the exchange is remembered.
	isEcho := p.isICMP() && p.Position != Later && p.isEchoRequest()
	if isEcho || !hasPorts(p.Proto) && !p.isICMP() {
		k := exchange(reply)
		return Decision{Reason: OutLearned, Learn: &k}
	}

	return Decision{Reason: OutPlain}
}

// isRepliedToHost reports whether the host would receive the reply to a packet of OVN. If a pod
// could send such a packet, it could impersonate the host. TCP and SCTP are not checked.
func (m Model) isRepliedToHost(reply *Packet) bool {
	if reply.Proto == protoUDP {
		return reply.Position != Later && m.replyByPort(reply) == HostSocket
	}

	return !hasPorts(reply.Proto) && !reply.isICMP() && m.isHostProto(reply)
}

func isIP(f *Frame) bool { return f.Type == etherIPv4 || f.Type == etherIPv6 }

// isFromFormer reports whether p is from a former address of the node.
func (m Model) isFromFormer(p *Packet) bool {
	return p.Src.IsValid() && !p.isMapped(p.Src) && m.kindOf(p.Src) == AddrFormer
}

// isNeighbourOfFormer reports whether f is ARP or neighbour discovery from a former address of the
// node. It would claim the address, which another machine may have by then.
func (m Model) isNeighbourOfFormer(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		return m.kindOf(f.ARP.Sender) == AddrFormer
	}

	return isIP(f) && f.IP.isNeighbourDiscovery() && m.isFromFormer(&f.IP)
}

// isTo reports whether p is addressed to an address of that kind. The address also counts if p is
// otherwise malformed.
func (m Model) isTo(p *Packet, kind AddrKind) bool {
	return p.Dst.IsValid() && !p.isMapped(p.Dst) && m.kindOf(p.Dst) == kind
}

// isForbiddenTunnel reports whether f is a tunnel packet that a pod must not send. OVN has
// translated its source to the node's address, from which other nodes accept tunnel packets. So the
// packet could deliver anything to their pods. Replies are not excepted: a pod may answer a request
// that it has forged itself.
func (m Model) isForbiddenTunnel(f *Frame) bool {
	p := &f.IP
	if !f.Whole || !isIP(f) || !m.isGeneve(p) {
		return false
	}

	return m.isTo(p, AddrHost) || m.isTo(p, AddrPeer) || !contains(m.Config.PodTunnels, p.V6, p.Dst)
}

// isGeneve reports whether p is a tunnel packet, by protocol and destination port.
func (m Model) isGeneve(p *Packet) bool {
	return p.Position != Later && p.Proto == protoUDP && p.DstPort == m.Config.GenevePort
}

// isFromEncap reports whether f is from the tunnel address of the userspace datapath: Geneve, or
// the ARP with which the datapath finds its peers and answers them.
func (m Model) isFromEncap(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		return m.isEncap(f.ARP.Sender)
	}

	p := &f.IP

	return m.isGeneve(p) && m.isEncap(p.Src)
}

// announcesOther reports whether f is an unsolicited announcement of an address that is neither the
// host's nor the link-local address of the node's gateway router. Replies do not count. Before OVN
// is in sync, it must not announce addresses that another node may have.
func (m Model) announcesOther(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		a := &f.ARP
		return (a.Op == arpRequest || a.Op == arpReply) && a.Sender == a.Target && !m.isHost(a.Target)
	}

	p := &f.IP

	return p.isNeighbourDiscovery() && p.ICMPType == icmp6Advert && p.Target.IsValid() && !p.Solicited &&
		!m.isHost(p.Target) && p.Target != m.Config.NodeMAC.LinkLocal()
}

// contains reports whether one of the prefixes contains a. The prefix must have the IP version of
// the header that a is from.
func contains(prefixes []netip.Prefix, v6 bool, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Addr().Is4() != v6 && p.Contains(a) {
			return true
		}
	}

	return false
}
