package frame

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket/layers"
)

// Host is an address of a host in a broadcast domain, and the MAC address of its interface there.
type Host struct {
	MAC  net.HardwareAddr
	Addr netip.Addr
}

// Answer returns the frame with which the neighbour from answers a request of to for its link-layer
// address: an ARP reply, or a solicited neighbour advertisement (RFC 4861, 4.4) of a router. vlan
// is 0 for an untagged frame. Both addresses must be of the same family.
func Answer(from, to Host, vlan uint16) ([]byte, error) {
	link := Spec{SrcMAC: from.MAC, DstMAC: to.MAC, VLAN: vlan}
	if from.Addr.Is4() {
		return serialize("answer of "+from.Addr.String(), append(link.ethernet(layers.EthernetTypeARP),
			arp(layers.ARPReply, from, to)))
	}

	ip := &layers.IPv6{
		Version:    6,
		NextHeader: layers.IPProtocolICMPv6,
		HopLimit:   255, // otherwise receivers ignore it
		SrcIP:      from.Addr.AsSlice(),
		DstIP:      to.Addr.AsSlice(),
	}

	icmp := &layers.ICMPv6{
		TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0),
	}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, fmt.Errorf("make neighbour advertisement: %w", err)
	}

	const router, solicited, override = 0x80, 0x40, 0x20 // flags

	advertisement := &layers.ICMPv6NeighborAdvertisement{
		Flags: router | solicited | override, TargetAddress: from.Addr.AsSlice(),
		Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: from.MAC}},
	}

	return serialize("answer of "+from.Addr.String(), append(link.ethernet(layers.EthernetTypeIPv6),
		ip, icmp, advertisement))
}
