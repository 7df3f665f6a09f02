package bpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"structs"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// This file converts between Go's types and the formats of types.h. There, addresses and ports are
// in network byte order, and an IPv4 address is mapped to IPv6 (::ffff:a.b.c.d). bpf2go has made Go
// types of the C structs, in which such values are integers of the host: words, addr4Of and bePort
// convert them.

// cell converts c to struct config. c must be valid. The networks Internal and External are not in
// it: they have a table.
func (c Config) cell() gatewayConfig {
	var mac [8]byte
	copy(mac[:], c.NodeMAC[:])

	cell := gatewayConfig{
		NodeMac:    binary.NativeEndian.Uint64(mac[:]),
		Uplink:     uint32(c.Uplink),
		Bridge:     uint32(c.Bridge),
		SnatFirst:  c.SNATPorts.First,
		GenevePort: c.GenevePort,
		Vlan:       c.VLAN,
		Mtu:        uint32(c.MTU),
	}
	if !c.Local { // in local gateway mode OVN owns no port
		cell.SnatCount = c.SNATPorts.Last - c.SNATPorts.First + 1
	}

	if c.Node4.IsValid() {
		cell.Node4Mapped.W = words(c.Node4)
		cell.Node4 = cell.Node4Mapped.W[3]
	}

	if c.Node6.IsValid() {
		cell.HasNode6, cell.Node6.W = 1, words(c.Node6)
	}

	if c.EncapIP.IsValid() {
		cell.HasEncap, cell.Encap.W = 1, words(c.EncapIP)
	}

	cell.GrLla.W = words(c.NodeMAC.LinkLocal())
	cell.Local, cell.Bfd, cell.InSync, cell.Takeover = flag(c.Local), flag(c.BFD), flag(c.InSync), flag(c.Takeover)
	cell.Svc4Count, cell.Svc6Count = prefixes(c.ServiceCIDRs, &cell.Svc4, &cell.Svc6)
	cell.Pod4Count, cell.Pod6Count = prefixes(c.PodCIDRs, &cell.Pod4, &cell.Pod6)
	cell.Routable4Count, cell.Routable6Count = prefixes(c.RoutablePods, &cell.Routable4, &cell.Routable6)
	cell.Masq4Count, cell.Masq6Count = prefixes(c.Masquerade, &cell.Masq4, &cell.Masq6)
	cell.Tunnel4Count, cell.Tunnel6Count = prefixes(c.PodTunnels, &cell.Tunnel4, &cell.Tunnel6)

	return cell
}

// configOf is the inverse of cell, except for the layout and the networks. In local gateway mode,
// cell has not stored the SNAT range.
func configOf(cell gatewayConfig) Config {
	var mac [8]byte
	binary.NativeEndian.PutUint64(mac[:], cell.NodeMac)

	c := Config{Uplink: int(cell.Uplink), Bridge: int(cell.Bridge), Config: verdict.Config{
		NodeMAC:      verdict.MAC(mac[:6]),
		SNATPorts:    cluster.PortRange{First: cell.SnatFirst, Last: cell.SnatFirst + cell.SnatCount - 1},
		GenevePort:   cell.GenevePort,
		ServiceCIDRs: listPrefixes(cell.Svc4Count, cell.Svc4, cell.Svc6Count, cell.Svc6),
		PodCIDRs:     listPrefixes(cell.Pod4Count, cell.Pod4, cell.Pod6Count, cell.Pod6),
		RoutablePods: listPrefixes(cell.Routable4Count, cell.Routable4, cell.Routable6Count, cell.Routable6),
		Masquerade:   listPrefixes(cell.Masq4Count, cell.Masq4, cell.Masq6Count, cell.Masq6),
		PodTunnels:   listPrefixes(cell.Tunnel4Count, cell.Tunnel4, cell.Tunnel6Count, cell.Tunnel6),
		Mode: verdict.Mode{
			VLAN: cell.Vlan, MTU: int(cell.Mtu), Local: cell.Local != 0, BFD: cell.Bfd != 0,
			InSync: cell.InSync != 0, Takeover: cell.Takeover != 0,
		},
	}}
	if cell.SnatCount == 0 {
		c.SNATPorts = cluster.PortRange{}
	}

	if cell.Node4 != 0 {
		c.Node4 = addrOf(cell.Node4Mapped.W)
	}

	if cell.HasNode6 != 0 {
		c.Node6 = addrOf(cell.Node6.W)
	}

	if cell.HasEncap != 0 {
		c.EncapIP = addrOf(cell.Encap.W)
	}

	return c
}

// words returns a as struct addr.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}

	return w
}

// addrOf is the inverse of words.
func addrOf(w [4]uint32) netip.Addr {
	var b []byte
	for _, v := range w {
		b = binary.NativeEndian.AppendUint32(b, v)
	}

	return netip.AddrFrom16([16]byte(b)).Unmap()
}

// addr4Of returns the IPv4 address that is the last of the words.
func addr4Of(w uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, w)))
}

// addrPort returns an address and port in the programs' format as netip.AddrPort.
func addrPort(addr [4]uint32, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(addrOf(addr), bePort(port))
}

// netmask returns the network address and the mask of p, as struct prefix6. Those of IPv4 are in
// the last words.
func netmask(p netip.Prefix) (net, mask [4]uint32) {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}

	var m [16]byte
	for i := range m {
		ones := min(max(bits-8*i, 0), 8) // in this byte
		m[i] = byte(0xff << (8 - ones))
	}

	return words(p.Masked().Addr()), words(netip.AddrFrom16(m))
}

// bePort converts port between host and network byte order. It is its own inverse.
func bePort(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// The arrays of prefixes in struct config. bpf2go generates no names for them.
type (
	prefixes4 = [maxPrefixes]struct {
		_         structs.HostLayout
		Net, Mask uint32
	}
	prefixes6 = [maxPrefixes]struct {
		_         structs.HostLayout
		Net, Mask struct {
			_ structs.HostLayout
			W [4]uint32
		}
	}
)

// prefixes stores each prefix in the array of its family, and returns the number of each. Validate
// has checked that there is room.
func prefixes(list []netip.Prefix, v4 *prefixes4, v6 *prefixes6) (n4, n6 uint8) {
	for _, p := range list {
		net, mask := netmask(p)
		if p.Addr().Is4() {
			v4[n4].Net, v4[n4].Mask = net[3], mask[3]
			n4++
		} else {
			v6[n6].Net.W, v6[n6].Mask.W = net, mask
			n6++
		}
	}

	return n4, n6
}

// listPrefixes is the inverse of prefixes, IPv4 first.
func listPrefixes(n4 uint8, v4 prefixes4, n6 uint8, v6 prefixes6) (list []netip.Prefix) {
	for _, p := range v4[:min(n4, maxPrefixes)] {
		list = append(list, netip.PrefixFrom(addr4Of(p.Net), bits.OnesCount32(p.Mask)))
	}

	for _, p := range v6[:min(n6, maxPrefixes)] {
		ones := 0
		for _, w := range p.Mask.W {
			ones += bits.OnesCount32(w)
		}

		list = append(list, netip.PrefixFrom(addrOf(p.Net.W), ones))
	}

	return list
}

func flag(b bool) uint8 {
	if b {
		return 1
	}

	return 0
}
