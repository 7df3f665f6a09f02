package frame

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Host is an address of a host in a broadcast domain.
type Host struct {
	MAC  net.HardwareAddr
	Addr netip.Addr
}

// Answer returns the frame with which a neighbour answers a request for its link-layer address: an
// ARP reply, or a solicited neighbour advertisement. vlan is 0 for an untagged frame.
func Answer(from, to Host, vlan uint16) ([]byte, error) {
	ethernet := &layers.Ethernet{SrcMAC: from.MAC, DstMAC: to.MAC, EthernetType: layers.EthernetTypeARP}

	var stack []gopacket.SerializableLayer
	if from.Addr.Is4() {
		stack = append(stack, &layers.ARP{
			AddrType:          layers.LinkTypeEthernet,
			Protocol:          layers.EthernetTypeIPv4,
			HwAddressSize:     6,
			ProtAddressSize:   4,
			Operation:         layers.ARPReply,
			SourceHwAddress:   from.MAC,
			SourceProtAddress: from.Addr.AsSlice(),
			DstHwAddress:      to.MAC,
			DstProtAddress:    to.Addr.AsSlice(),
		})
	} else {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{
			Version:    6,
			NextHeader: layers.IPProtocolICMPv6,
			HopLimit:   255,
			SrcIP:      from.Addr.AsSlice(),
			DstIP:      to.Addr.AsSlice(),
		}

		icmp := &layers.ICMPv6{
			TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0),
		}
		if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
			return nil, fmt.Errorf("make neighbour advertisement: %w", err)
		}

		const router, solicited, override = 0x80, 0x40, 0x20 // RFC 4861, 4.4

		stack = append(stack, ip, icmp, &layers.ICMPv6NeighborAdvertisement{
			Flags: router | solicited | override, TargetAddress: from.Addr.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: from.MAC}},
		})
	}

	if vlan != 0 {
		tag := &layers.Dot1Q{VLANIdentifier: vlan, Type: ethernet.EthernetType}
		stack = append([]gopacket.SerializableLayer{tag}, stack...)
		ethernet.EthernetType = layers.EthernetTypeDot1Q
	}

	stack = append([]gopacket.SerializableLayer{ethernet}, stack...)
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}

	if err := gopacket.SerializeLayers(buf, options, stack...); err != nil {
		return nil, fmt.Errorf("make answer of %s: %w", from.Addr, err)
	}

	return buf.Bytes(), nil
}
