package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// outcome is the source and the decision of a packet, in the JSON of monitor and explain. The tag
// doc is its description in the documents.
type outcome struct {
	From      string `json:"from" doc:"wire: from the uplink; ovn: from OVN; host: from the host, in layout bridged"`
	Direction string `json:"direction" doc:"rx: from the wire; tx: to the wire"`
	Verdict   string `json:"verdict" doc:"host, ovn, both, out or drop"`
	Reason    string `json:"reason" doc:"the rule that decides, as in 'ovnkube gateway counters -all'"`
	Length    int    `json:"length" doc:"bytes of the frame; of a GSO packet, all of it"`
}

// packetFields are the fields of a packet, in the same JSON.
type packetFields struct {
	SourceMAC       string     `json:"sourceMAC" doc:"Ethernet source"`
	DestinationMAC  string     `json:"destinationMAC" doc:"Ethernet destination"`
	VLAN            uint16     `json:"vlan,omitempty" doc:"VLAN of the tag"`
	Protocol        string     `json:"protocol" doc:"tcp, udp, sctp, icmp, icmp6, arp, the number of another IP protocol, or 0x and the EtherType of what is neither IP nor ARP"`
	Source          netip.Addr `json:"source,omitzero" doc:"source address as on the wire; of ARP the sender's"`
	SourcePort      uint16     `json:"sourcePort,omitempty" doc:"of TCP, UDP and SCTP; not in a later fragment"`
	Destination     netip.Addr `json:"destination,omitzero" doc:"destination address as on the wire; of ARP the target's"`
	DestinationPort uint16     `json:"destinationPort,omitempty" doc:"of TCP, UDP and SCTP; not in a later fragment"`
	TCPFlags        []string   `json:"tcpFlags,omitempty" doc:"those that are set: fin, syn, rst, psh, ack, urg, ece, cwr"`
	ICMPType        *uint8     `json:"icmpType,omitempty" doc:"type, a number"`
	ICMPCode        *uint8     `json:"icmpCode,omitempty" doc:"code, a number"`
	ICMPID          *uint16    `json:"icmpID,omitempty" doc:"identifier of an echo request or reply"`
	Fragment        string     `json:"fragment,omitempty" doc:"first or later, of a fragmented packet"`
	Quoted          *quoted    `json:"quoted,omitempty" doc:"the packet that an ICMP error is about: protocol, source, sourcePort, destination, destinationPort"`
	Pod             string     `json:"pod,omitempty" doc:"namespace/name of the pod of this node that sends or receives the packet, as the connection tracker knows it"`
	PodAddress      netip.Addr `json:"podAddress,omitzero" doc:"address of the pod, which may be another node's"`
	Service         string     `json:"service,omitempty" doc:"namespace/name:port/protocol of the Service at the destination, or of an answer at the source"`
}

// quoted is the packet quoted by an ICMP error.
type quoted struct {
	Protocol        string     `json:"protocol"`
	Source          netip.Addr `json:"source"`
	SourcePort      uint16     `json:"sourcePort,omitempty"`
	Destination     netip.Addr `json:"destination"`
	DestinationPort uint16     `json:"destinationPort,omitempty"`
}

// fieldsOf parses a frame. Unreadable fields are omitted.
func fieldsOf(b []byte) packetFields {
	f := verdict.Parse(b)

	out := packetFields{
		SourceMAC:      net.HardwareAddr(f.Src[:]).String(),
		DestinationMAC: net.HardwareAddr(f.Dst[:]).String(),
		VLAN:           f.VID,
	}
	switch f.Type {
	case unix.ETH_P_ARP:
		out.Protocol, out.Source, out.Destination = "arp", f.ARP.Sender, f.ARP.Target
		return out
	case unix.ETH_P_IP, unix.ETH_P_IPV6:
	default:
		out.Protocol = fmt.Sprintf("0x%04x", f.Type)
		return out
	}

	p := f.IP
	out.Protocol, out.Source, out.Destination = protocolName(p.Proto), p.Src, p.Dst
	out.SourcePort, out.DestinationPort = p.SrcPort, p.DstPort
	out.Fragment = map[verdict.Position]string{verdict.First: "first", verdict.Later: "later"}[p.Position]

	if p.Proto == unix.IPPROTO_TCP && p.Position != verdict.Later {
		out.TCPFlags = tcpFlags(p.Flags)
	}

	if p.Position != verdict.Later && f.Whole &&
		(p.Proto == unix.IPPROTO_ICMPV6 && p.V6 || p.Proto == unix.IPPROTO_ICMP && !p.V6) {
		out.ICMPType, out.ICMPCode = &p.ICMPType, &p.ICMPCode
		if p.ICMPType == 128 || p.ICMPType == 129 || !p.V6 && (p.ICMPType == 8 || p.ICMPType == 0) {
			out.ICMPID = &p.EchoID
		}
	}

	if q := p.Quote; q != nil {
		out.Quoted = &quoted{protocolName(q.Proto), q.Src, q.SrcPort, q.Dst, q.DstPort}
	}

	return out
}

func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMPV6:
		return "icmp6"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}

	return strconv.Itoa(int(p))
}

func tcpFlags(set uint8) (names []string) {
	for i, name := range []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"} {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}

	return names
}
