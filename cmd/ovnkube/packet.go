package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// outcome is the origin of a packet and the decision about it, in the JSON of monitor and explain.
// The tag doc describes a field in the documents.
type outcome struct {
	From      string `json:"from" doc:"origin of the packet: wire (the uplink), ovn (OVN), or host (the host, in layout bridged)"`
	Direction string `json:"direction" doc:"rx: received from the wire; tx: sent to the wire"`
	Verdict   string `json:"verdict" doc:"receiver of the packet: host, ovn, both, out (the wire), or drop (none)"`
	Reason    string `json:"reason" doc:"name of the rule that decides, as in 'ovnkube gateway counters -all'"`
	Length    int    `json:"length" doc:"length of the frame in bytes; for a GSO packet, of the whole packet"`
}

// packetFields are the fields of a packet in the same JSON.
type packetFields struct {
	SourceMAC       string     `json:"sourceMAC" doc:"source MAC address"`
	DestinationMAC  string     `json:"destinationMAC" doc:"destination MAC address"`
	VLAN            uint16     `json:"vlan,omitempty" doc:"VLAN ID of the tag"`
	Protocol        string     `json:"protocol" doc:"tcp, udp, sctp, icmp, icmp6 or arp; for other IP protocols, the number; for other frames, 0x and the EtherType"`
	Source          netip.Addr `json:"source,omitzero" doc:"source address on the wire; for ARP, the sender's"`
	SourcePort      uint16     `json:"sourcePort,omitempty" doc:"source port of TCP, UDP or SCTP; later fragments have none"`
	Destination     netip.Addr `json:"destination,omitzero" doc:"destination address on the wire; for ARP, the target's"`
	DestinationPort uint16     `json:"destinationPort,omitempty" doc:"destination port of TCP, UDP or SCTP; later fragments have none"`
	TCPFlags        []string   `json:"tcpFlags,omitempty" doc:"flags that are set: fin, syn, rst, psh, ack, urg, ece, cwr"`
	ICMPType        *uint8     `json:"icmpType,omitempty" doc:"ICMP type, a number"`
	ICMPCode        *uint8     `json:"icmpCode,omitempty" doc:"ICMP code, a number"`
	ICMPID          *uint16    `json:"icmpID,omitempty" doc:"identifier of an echo request or reply"`
	Fragment        string     `json:"fragment,omitempty" doc:"position of a fragment: first or later"`
	Quoted          *quoted    `json:"quoted,omitempty" doc:"packet that an ICMP error quotes, with protocol, source, sourcePort, destination, destinationPort"`
	Pod             string     `json:"pod,omitempty" doc:"namespace/name of the pod on this node that sends or receives the packet"`
	PodAddress      netip.Addr `json:"podAddress,omitzero" doc:"address of the pod; the pod may run on another node"`
	Service         string     `json:"service,omitempty" doc:"namespace/name:port/protocol of the Service at the destination; for direction tx, at the source"`
}

// quoted is the packet that an ICMP error quotes.
type quoted struct {
	Protocol        string     `json:"protocol"`
	Source          netip.Addr `json:"source"`
	SourcePort      uint16     `json:"sourcePort,omitempty"`
	Destination     netip.Addr `json:"destination"`
	DestinationPort uint16     `json:"destinationPort,omitempty"`
}

// fieldsOf parses a frame. It omits fields that it cannot read.
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
