package frame

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Microflow formats a frame as an ovn-trace(8) microflow, without its input port.
func Microflow(frame []byte) string {
	var terms []string

	add := func(format string, args ...any) { terms = append(terms, fmt.Sprintf(format, args...)) }

	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			add("eth.src == %s && eth.dst == %s", l.SrcMAC, l.DstMAC)
		case *layers.IPv4:
			add("ip4.src == %s && ip4.dst == %s && ip.ttl == %d", l.SrcIP, l.DstIP, l.TTL)

			if isUnnamed(l.Protocol) {
				add("ip.proto == %d", l.Protocol)
			}
		case *layers.IPv6:
			add("ip6.src == %s && ip6.dst == %s && ip.ttl == %d", l.SrcIP, l.DstIP, l.HopLimit)

			if isUnnamed(l.NextHeader) {
				add("ip.proto == %d", l.NextHeader)
			}
		case *layers.TCP:
			add("tcp.src == %d && tcp.dst == %d", l.SrcPort, l.DstPort)
		case *layers.UDP:
			add("udp.src == %d && udp.dst == %d", l.SrcPort, l.DstPort)
		case *layers.SCTP:
			add("sctp.src == %d && sctp.dst == %d", l.SrcPort, l.DstPort)
		case *layers.ICMPv4:
			add("icmp4.type == %d && icmp4.code == %d", l.TypeCode.Type(), l.TypeCode.Code())
		case *layers.ICMPv6:
			add("icmp6.type == %d && icmp6.code == %d", l.TypeCode.Type(), l.TypeCode.Code())
		}
	}

	return strings.Join(terms, " && ")
}

// isUnnamed reports whether a protocol needs a term of its own: no term of a transport header names
// it.
func isUnnamed(p layers.IPProtocol) bool {
	return !slices.Contains([]layers.IPProtocol{
		layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolSCTP,
		layers.IPProtocolICMPv4, layers.IPProtocolICMPv6,
	}, p)
}
