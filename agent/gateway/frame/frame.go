package frame

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Spec describes a packet. Src and Dst must be of the same family.
type Spec struct {
	SrcMAC, DstMAC net.HardwareAddr
	VLAN           uint16         // 0: untagged
	Proto          string         // as for Protocol, or "arp": a request of Src for Dst
	Src, Dst       netip.AddrPort // protocols without ports ignore the ports
	Flags          []string       // TCP: syn, ack, fin, rst, psh
	ICMP           ICMP           // with Proto "icmp", or the number of ICMP
	Payload        int            // zero bytes behind the transport header; ARP has none
}

// ICMP describes an ICMP or ICMPv6 message. ID is the identifier of echo requests and replies.
type ICMP struct {
	Type, Code uint8
	ID         uint16
}

// Echo returns the type of an echo request or reply of the family.
func Echo(v6, reply bool) uint8 {
	switch {
	case v6 && reply:
		return layers.ICMPv6TypeEchoReply
	case v6:
		return layers.ICMPv6TypeEchoRequest
	case reply:
		return layers.ICMPv4TypeEchoReply
	}

	return layers.ICMPv4TypeEchoRequest
}

// Bytes returns the frame, from the Ethernet header on and without frame check sequence. Lengths
// and checksums are correct.
func (s Spec) Bytes() ([]byte, error) {
	stack, err := s.layers()
	if err != nil {
		return nil, fmt.Errorf("make %s packet: %w", s.Proto, err)
	}

	return serialize(s.Proto+" packet", stack)
}

// serialize returns the bytes of the layers. what names them in an error.
func serialize(what string, stack []gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}

	if err := gopacket.SerializeLayers(buf, options, stack...); err != nil {
		return nil, fmt.Errorf("make %s: %w", what, err)
	}

	return buf.Bytes(), nil
}

// arp returns an ARP packet. A request does not know the target's MAC address, which is zero.
func arp(operation uint16, sender, target Host) *layers.ARP {
	return &layers.ARP{
		AddrType:          layers.LinkTypeEthernet,
		Protocol:          layers.EthernetTypeIPv4,
		HwAddressSize:     6,
		ProtAddressSize:   4,
		Operation:         operation,
		SourceHwAddress:   sender.MAC,
		SourceProtAddress: sender.Addr.AsSlice(),
		DstHwAddress:      target.MAC,
		DstProtAddress:    target.Addr.AsSlice(),
	}
}

// layers returns the layers from Ethernet to the payload.
func (s Spec) layers() ([]gopacket.SerializableLayer, error) {
	src, dst := s.Src.Addr(), s.Dst.Addr()
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return nil, fmt.Errorf("addresses %s and %s differ in family", src, dst)
	}

	if s.Proto == "arp" {
		if !src.Is4() {
			return nil, errors.New("ARP is IPv4 only; for IPv6 use icmp of type 135 or 136")
		}

		request := arp(layers.ARPRequest, Host{s.SrcMAC, src}, Host{make([]byte, 6), dst})

		return append(s.ethernet(layers.EthernetTypeARP), request), nil
	}

	proto, err := Protocol(s.Proto, src.Is6())
	if err != nil {
		return nil, err
	}

	var (
		stack   []gopacket.SerializableLayer
		network gopacket.NetworkLayer
	)

	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		network, stack = ip, append(s.ethernet(layers.EthernetTypeIPv4), ip)
	} else {
		ip := &layers.IPv6{
			Version:    6,
			HopLimit:   64,
			NextHeader: proto,
			SrcIP:      src.AsSlice(),
			DstIP:      dst.AsSlice(),
		}
		network, stack = ip, append(s.ethernet(layers.EthernetTypeIPv6), ip)
	}

	transport, err := s.transport(proto, network)
	if err != nil {
		return nil, err
	}

	return append(append(stack, transport...), gopacket.Payload(make([]byte, s.Payload))), nil
}

// ethernet returns the Ethernet header, and the VLAN tag if there is one. kind is the EtherType of
// the payload.
func (s Spec) ethernet(kind layers.EthernetType) []gopacket.SerializableLayer {
	eth := &layers.Ethernet{SrcMAC: s.SrcMAC, DstMAC: s.DstMAC, EthernetType: kind}
	if s.VLAN == 0 {
		return []gopacket.SerializableLayer{eth}
	}

	eth.EthernetType = layers.EthernetTypeDot1Q

	return []gopacket.SerializableLayer{eth, &layers.Dot1Q{VLANIdentifier: s.VLAN, Type: kind}}
}

// transport returns the header of TCP, UDP, SCTP, ICMP or ICMPv6, or nothing for other protocols.
// network is the IP header, which is part of most checksums.
func (s Spec) transport(
	proto layers.IPProtocol,
	network gopacket.NetworkLayer,
) ([]gopacket.SerializableLayer, error) {
	switch proto {
	case layers.IPProtocolTCP:
		return s.tcp(network)
	case layers.IPProtocolUDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(s.Src.Port()), DstPort: layers.UDPPort(s.Dst.Port())}
		return []gopacket.SerializableLayer{udp}, udp.SetNetworkLayerForChecksum(network)
	case layers.IPProtocolSCTP:
		return []gopacket.SerializableLayer{
			&layers.SCTP{SrcPort: layers.SCTPPort(s.Src.Port()), DstPort: layers.SCTPPort(s.Dst.Port())},
		}, nil
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(s.ICMP.Type, s.ICMP.Code), Id: s.ICMP.ID},
		}, nil
	case layers.IPProtocolICMPv6:
		return s.icmp6(network)
	}

	return nil, nil
}

func (s Spec) tcp(network gopacket.NetworkLayer) ([]gopacket.SerializableLayer, error) {
	known := []string{"syn", "ack", "fin", "rst", "psh"}
	for _, f := range s.Flags {
		if !slices.Contains(known, f) {
			return nil, fmt.Errorf("unknown TCP flag %q: want %s", f, strings.Join(known, ", "))
		}
	}

	isSet := func(f string) bool { return slices.Contains(s.Flags, f) }
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.Src.Port()), DstPort: layers.TCPPort(s.Dst.Port()), Window: 65535,
		SYN: isSet("syn"), ACK: isSet("ack"), FIN: isSet("fin"), RST: isSet("rst"), PSH: isSet("psh"),
	}

	return []gopacket.SerializableLayer{tcp}, tcp.SetNetworkLayerForChecksum(network)
}

// icmp6 returns an ICMPv6 message. The target of a neighbour solicitation is the destination
// address, and the target of an advertisement is the source address. Other messages have a rest of
// zeros.
func (s Spec) icmp6(network gopacket.NetworkLayer) ([]gopacket.SerializableLayer, error) {
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(s.ICMP.Type, s.ICMP.Code)}
	out := []gopacket.SerializableLayer{icmp}

	switch s.ICMP.Type {
	case layers.ICMPv6TypeEchoRequest, layers.ICMPv6TypeEchoReply:
		out = append(out, &layers.ICMPv6Echo{Identifier: s.ICMP.ID})
	case layers.ICMPv6TypeNeighborSolicitation:
		out = append(out, &layers.ICMPv6NeighborSolicitation{TargetAddress: s.Dst.Addr().AsSlice()})
	case layers.ICMPv6TypeNeighborAdvertisement:
		out = append(out, &layers.ICMPv6NeighborAdvertisement{TargetAddress: s.Src.Addr().AsSlice()})
	default:
		out = append(out, gopacket.Payload(make([]byte, 4))) // the second word of the ICMPv6 header
	}

	return out, icmp.SetNetworkLayerForChecksum(network)
}

// Protocol returns the number of an IP protocol. name is tcp, udp, sctp, icmp (ICMPv6 if v6), or a
// decimal number below 256.
func Protocol(name string, v6 bool) (layers.IPProtocol, error) {
	switch name {
	case "tcp":
		return layers.IPProtocolTCP, nil
	case "udp":
		return layers.IPProtocolUDP, nil
	case "sctp":
		return layers.IPProtocolSCTP, nil
	case "icmp":
		if v6 {
			return layers.IPProtocolICMPv6, nil
		}

		return layers.IPProtocolICMPv4, nil
	}

	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q: want tcp, udp, sctp, icmp, arp or a number below 256",
			name)
	}

	return layers.IPProtocol(n), nil
}
