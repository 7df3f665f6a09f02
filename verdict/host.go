package verdict

// fromHost decides packets that the host sends through the gateway bridge, which has its address in
// layout bridged. OVN serves the host's packets to Services. All others leave through the uplink:
// Geneve because it is the node's own tunnel, and packets with a tag of the host because they are
// for another network.
func (m Model) fromHost(f *Frame) Reason {
	p := &f.IP
	switch {
	case f.Tagged, !isIP(f), !p.Dst.IsValid():
		return HostOut
	case f.Whole && m.isGeneve(p):
		return HostOut
	case contains(m.Config.ServiceCIDRs, p.V6, p.Dst), contains(m.Config.Masquerade, p.V6, p.Dst):
		return HostOVN
	}

	return HostOut
}
