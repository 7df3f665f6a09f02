package verdict

import "net/netip"

func (m Model) fromOVN(f *Frame) Decision {
	p := &f.IP
	isIP := f.Type == etherIPv4 || f.Type == etherIPv6
	switch {
	case m.tunnel(f):
		return Decision{Reason: EncapOut}
	case f.Src != m.Config.NodeMAC:
		return Decision{Reason: BadMAC}
	case f.Type == etherARP, isIP && f.Whole && p.neighbour():
		return Decision{Reason: NeighbourOut}
	case !isIP:
		return Decision{Reason: OutPlain}
	case contains(m.Config.ServiceCIDRs, p.V6, p.Dst):
		return Decision{Reason: SvcLeak}
	case contains(m.Config.PodCIDRs, p.V6, p.Src):
		return Decision{Reason: Unsnated}
	case f.Whole && m.learns(p):
		k := exchange(reversed(p))
		return Decision{Reason: OutLearned, Learn: &k}
	}
	return Decision{Reason: OutPlain}
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
	return p.Position != Later && p.Proto == protoUDP && p.DstPort == m.Config.GenevePort && m.encap(p.Src)
}

// learns reports whether the answers to p have no local port to tell them by.
func (m Model) learns(p *Packet) bool {
	if hasPorts(p.Proto) || !m.node(p.Src) {
		return false
	}
	return !p.icmp() || p.Position != Later && p.echo()
}

// contains reports whether a, from a header of that version, is in one of the
// prefixes of that version.
func contains(prefixes []netip.Prefix, v6 bool, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Addr().Is4() != v6 && p.Contains(a) {
			return true
		}
	}
	return false
}
