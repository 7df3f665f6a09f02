package verdict

import "net/netip"

// behindTag returns f as seen by a reader that accepts only the gateway network's tag.
func (m Model) behindTag(f Frame) *Frame {
	if f.Tagged && !m.ourTag(&f) {
		return &Frame{Dst: f.Dst, Src: f.Src, Tagged: true, Type: etherVLAN}
	}

	return &f
}

func isIP(f *Frame) bool { return f.Type == etherIPv4 || f.Type == etherIPv6 }

func (m Model) fromOVN(f *Frame) Decision {
	p := &f.IP
	switch {
	case m.tunnel(f):
		return Decision{Reason: EncapOut}
	case m.podTunnel(f):
		return Decision{Reason: PodTunnel}
	case isIP(f) && p.isTooBig() && m.to(p, AddrPeer):
		return Decision{Reason: PMTUD}
	case isIP(f) && (m.to(p, AddrHost) || contains(m.Config.ServiceCIDRs, p.V6, p.Src)):
		return Decision{Reason: Hairpin}
	case f.Src != m.Config.NodeMAC:
		return Decision{Reason: BadMAC}
	case isIP(f) && f.Whole && m.bfd(p):
		return Decision{Reason: BFDOut}
	case m.neighbourOfFormer(f):
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
		m.fromFormer(p):
		return Decision{Reason: Unsnated}
	}

	return m.guarded(f)
}

// fromFormer reports whether p is from a former address of the node.
func (m Model) fromFormer(p *Packet) bool {
	return p.Src.IsValid() && !p.mapped(p.Src) && m.kind(p.Src) == AddrFormer
}

// neighbourOfFormer reports whether f is ARP or neighbour discovery from a former address of the
// node. It would claim the address, which another machine may have by then.
func (m Model) neighbourOfFormer(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		return m.kind(f.ARP.Sender) == AddrFormer
	}

	return isIP(f) && f.IP.isNeighbourDiscovery() && m.fromFormer(&f.IP)
}

// guarded decides IP that may leave the node.
func (m Model) guarded(f *Frame) Decision {
	p := &f.IP
	ours := f.Whole && m.node(p.Src) && !p.mapped(p.Src)

	switch {
	case m.Config.Local && m.Config.MTU > 0 && f.Length > m.Config.MTU:
		return Decision{Reason: Oversized}
	case m.Config.Local && ours && hasPorts(p.Proto):
		return Decision{Reason: LocalOut}
	case !ours:
		return Decision{Reason: OutPlain}
	}

	q := p.Reversed()
	switch {
	case q.Proto == protoUDP && q.Position != Later && m.byPort(q, true) == HostSocket,
		!hasPorts(q.Proto) && !q.isICMP() && m.hostProto(q):
		return Decision{Reason: HostOwned}
	case !hasPorts(q.Proto) && !q.isICMP(), q.isICMP() && q.Position != Later && q.isEchoRequest():
		k := exchange(q)
		return Decision{Reason: OutLearned, Learn: &k}
	}

	return Decision{Reason: OutPlain}
}

// to reports whether p is addressed to an address of kind k. The address also counts if p is
// otherwise malformed.
func (m Model) to(p *Packet, k AddrKind) bool {
	return p.Dst.IsValid() && !p.mapped(p.Dst) && m.kind(p.Dst) == k
}

// podTunnel reports whether f is a tunnel packet that a pod must not send. OVN would translate its
// source to the node's address, from which other nodes accept tunnel packets. So the packet could
// deliver anything to their pods. Replies are not excepted: a pod may answer a forged request.
func (m Model) podTunnel(f *Frame) bool {
	p := &f.IP
	if !f.Whole || !isIP(f) || !m.isGeneve(p) {
		return false
	}

	return m.to(p, AddrHost) || m.to(p, AddrPeer) || !contains(m.Config.PodTunnels, p.V6, p.Dst)
}

// isGeneve reports whether p is for the port of tunnels.
func (m Model) isGeneve(p *Packet) bool {
	return p.Position != Later && p.Proto == protoUDP && p.DstPort == m.Config.GenevePort
}

// tunnel reports whether the userspace datapath's own tunnel sent f.
func (m Model) tunnel(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		return m.encap(f.ARP.Sender)
	}

	p := &f.IP

	return m.isGeneve(p) && m.encap(p.Src)
}

// announcesOther reports whether f is an unsolicited announcement of an address that is neither the
// host's nor the link-local address of the node's gateway router. Replies do not count.
func (m Model) announcesOther(f *Frame) bool {
	if !f.Whole {
		return false
	}

	if f.Type == etherARP {
		a := &f.ARP
		return (a.Op == arpRequest || a.Op == arpReply) && a.Sender == a.Target && !m.host(a.Target)
	}

	p := &f.IP

	return p.isNeighbourDiscovery() && p.ICMPType == icmp6Advert && p.Target.IsValid() && !p.Solicited &&
		!m.host(p.Target) && p.Target != m.Config.NodeMAC.LinkLocal()
}

// contains reports whether a prefix of that version contains a, from a header of that version.
func contains(prefixes []netip.Prefix, v6 bool, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Addr().Is4() != v6 && p.Contains(a) {
			return true
		}
	}

	return false
}
