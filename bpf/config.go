package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

const maxPrefixes = 4 // MAX_PREFIXES in types.h

// PortRange is a range of transport ports, both ends in it.
type PortRange struct{ First, Last uint16 }

// Config is what the programs know of the node. It is live: SetConfig changes
// it under running programs.
type Config struct {
	Uplink, Bridge         int              // interface indexes; 0: everything passes to the host, nothing of OVN's leaves
	NodeMAC                net.HardwareAddr // of the uplink, breth0 and the gateway router
	Node4, Node6           netip.Addr       // the gateway router's addresses, which are the host's; zero: family off
	SNATPorts              PortRange        // OVN's own local ports
	GenevePort             uint16
	EncapIP                netip.Addr // the userspace datapath's own tunnel address; zero: the kernel terminates tunnels
	ServiceCIDRs, PodCIDRs []netip.Prefix
}

// Validate returns every mistake in c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Uplink < 0 || c.Bridge < 0 {
		bad("interface index below zero: uplink %d, bridge %d", c.Uplink, c.Bridge)
	}
	if c.Uplink != 0 && c.Uplink == c.Bridge {
		bad("uplink and bridge are the same interface %d", c.Uplink)
	}
	if len(c.NodeMAC) != 6 {
		bad("node MAC %q is not an Ethernet address", c.NodeMAC)
	}
	if c.Node4.IsValid() && !c.Node4.Is4() {
		bad("node IPv4 address %s is not IPv4", c.Node4)
	}
	if c.Node6.IsValid() && (!c.Node6.Is6() || c.Node6.Is4In6()) {
		bad("node IPv6 address %s is not IPv6", c.Node6)
	}
	if c.SNATPorts.First == 0 || c.SNATPorts.First > c.SNATPorts.Last {
		bad("SNAT port range %d-%d is empty", c.SNATPorts.First, c.SNATPorts.Last)
	}
	if c.GenevePort == 0 {
		bad("Geneve port is zero")
	}
	if c.EncapIP.IsValid() && (c.EncapIP == c.Node4 || c.EncapIP == c.Node6) {
		bad("encapsulation address %s is the node's own", c.EncapIP)
	}
	errs = append(errs, checkPrefixes("service", c.ServiceCIDRs), checkPrefixes("pod", c.PodCIDRs))
	return errors.Join(errs...)
}

func checkPrefixes(what string, prefixes []netip.Prefix) error {
	var n4, n6 int
	for _, p := range prefixes {
		if !p.IsValid() {
			return fmt.Errorf("%s CIDR %s is invalid", what, p)
		}
		if p.Addr().Is4() {
			n4++
		} else {
			n6++
		}
	}
	if n4 > maxPrefixes || n6 > maxPrefixes {
		return fmt.Errorf("%d IPv4 and %d IPv6 %s CIDRs: at most %d of a family", n4, n6, what, maxPrefixes)
	}
	return nil
}

// cell lays c out as the programs read it. c is valid.
func (c Config) cell() gatewayConfig {
	var mac [8]byte
	copy(mac[:], c.NodeMAC)
	cell := gatewayConfig{
		NodeMac:    binary.NativeEndian.Uint64(mac[:]),
		Uplink:     uint32(c.Uplink),
		Bridge:     uint32(c.Bridge),
		SnatFirst:  c.SNATPorts.First,
		SnatSpan:   c.SNATPorts.Last - c.SNATPorts.First,
		GenevePort: c.GenevePort,
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
	cell.GrLla.W = words(linkLocal(c.NodeMAC))
	for _, p := range c.ServiceCIDRs {
		net, mask := netmask(p)
		if p.Addr().Is4() {
			dst := &cell.Svc4[cell.Svc4Count]
			dst.Net, dst.Mask = net[3], mask[3]
			cell.Svc4Count++
		} else {
			dst := &cell.Svc6[cell.Svc6Count]
			dst.Net.W, dst.Mask.W = net, mask
			cell.Svc6Count++
		}
	}
	for _, p := range c.PodCIDRs {
		net, mask := netmask(p)
		if p.Addr().Is4() {
			dst := &cell.Pod4[cell.Pod4Count]
			dst.Net, dst.Mask = net[3], mask[3]
			cell.Pod4Count++
		} else {
			dst := &cell.Pod6[cell.Pod6Count]
			dst.Net.W, dst.Mask.W = net, mask
			cell.Pod6Count++
		}
	}
	return cell
}

// words returns a as the programs hold it: in network order, IPv4 mapped.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

func netmask(p netip.Prefix) (net, mask [4]uint32) {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	var m [16]byte
	for i := range m {
		n := min(max(bits-8*i, 0), 8)
		m[i] = byte(0xff << (8 - n))
	}
	return words(p.Masked().Addr()), words(netip.AddrFrom16(m))
}

// linkLocal is the address OVN gives a router port with this MAC (RFC 4291,
// modified EUI-64).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2],
		11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}

// bePort returns port such that its memory is in network order.
func bePort(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}
