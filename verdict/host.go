package verdict

// fromHost decides packets that the host sends when breth0 has its address. Packets that the host
// tags itself are for another network.
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
