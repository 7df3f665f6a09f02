package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func echoRows(f Family) []row {
	return []row{
		rx("ping", verdict.ICMPEcho, f.In(f.Ping(askedID))),
		rx("ping of the second address", verdict.ICMPEcho, f.Rx(f.Remote, f.Second, f.Ping(1))),
		rx("ping of an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, f.Ping(1))),
		rx("reply to ovn", verdict.ICMPEchoReplyNS, f.In(f.Pong(askedID))),
		rx("reply to ovn, too late", verdict.ICMPEchoReply, f.In(f.Pong(expiredID))),
		rx("reply to the host", verdict.ICMPEchoReply, f.In(f.Pong(8))),
		rx("reply of another peer", verdict.ICMPEchoReply, f.Rx(f.Foreign, f.Node, f.Pong(askedID))),
		rx("reply to the second address", verdict.ICMPEchoReply, f.Rx(f.Remote, f.Second, f.Pong(askedID))),
		rx("reply to an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, f.Pong(askedID))),
		rx("other message", verdict.Default, f.In(f.ICMP(150, 0, 0, make([]byte, 8)))),
		rx("other message to an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, f.ICMP(150, 0, 0, make([]byte, 8)))),
		rx("the other family's icmp", verdict.Default, f.In(L4{ProtoICMP + ProtoICMPv6 - f.icmp, f.Pong(askedID).Data})),
	}
}

// errorRows cover ICMP errors. An error belongs to the sender of the quoted packet.
func errorRows(f Family) []row {
	about := func(src netip.Addr, l4 L4) []byte { return f.Rx(f.Foreign, f.Node, f.Unreachable(f.Sent(src, l4))) }
	later := IP{Src: f.Node, Dst: f.Remote, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 1, Offset: 24}}.Bytes()
	laterGRE := IP{Src: f.Node, Dst: f.Remote, L4: Part(ProtoGRE), Fragment: &Fragment{ID: 1, Offset: 24}}.Bytes()
	first := IP{Src: f.Node, Dst: f.Remote, L4: UDP(snatPort, 53), Fragment: &Fragment{ID: 1, More: true}}.Bytes()
	whole, tcp := f.Sent(f.Node, UDP(snatPort, 53)), f.Sent(f.Node, TCP(snatPort, 80, ACK))

	rows := []row{
		rx("of ovn's tcp", verdict.ICMPErrorOVN, about(f.Node, TCP(snatPort, 80, SYN))).inLocal(verdict.ICMPErrorHost),
		rx("of ovn's udp", verdict.ICMPErrorOVN, about(f.Node, UDP(snatPort, 53))).inLocal(verdict.ICMPErrorHost),
		rx("of ovn's sctp", verdict.ICMPErrorOVN, about(f.Node, SCTP(snatPort, 80))).inLocal(verdict.ICMPErrorHost),
		rx("of the host's tcp", verdict.ICMPErrorHost, about(f.Node, TCP(40001, 443, SYN))),
		rx("of the host's udp", verdict.ICMPErrorHost, about(f.Node, UDP(40001, 53))),
		rx("of a host socket's udp", verdict.ICMPErrorHost, about(f.Node, UDP(udpSocket, 55))),
		rx("of a host socket's udp, a connection of before", verdict.ICMPErrorHost, about(f.Node, UDP(udpSocket, 53))),
		rx("of a nodeport's reply", verdict.ICMPErrorOVN, about(f.Node, TCP(nodePort, 4000, ACK))).inLocal(verdict.ICMPErrorHost),
		rx("of a host endpoint's reply", verdict.ICMPErrorHost, about(f.Node, TCP(hostedPort, 4000, ACK))),
		rx("of a vip's reply", verdict.ICMPErrorOVN, about(f.VIP, TCP(vipPort, 4000, ACK))).inLocal(verdict.ICMPErrorHost),
		rx("of geneve, its port in the range", verdict.ICMPErrorHost, about(f.Node, UDP(snatPort, genevePort))),
		rx("of ovn's ping", verdict.ICMPErrorEcho, about(f.Node, f.Ping(askedID))),
		rx("of the host's ping", verdict.ICMPErrorHost, about(f.Node, f.Ping(8))),
		rx("of ovn's ping, too late", verdict.ICMPErrorHost, about(f.Node, f.Ping(expiredID))),
		rx("too big, ovn's ping", verdict.ICMPErrorEcho, f.In(f.TooBig(f.Sent(f.Node, f.Ping(askedID))))),
		rx("of a ping reply", verdict.ICMPErrorHost, about(f.Node, f.Pong(askedID))),
		rx("of ovn's gre", verdict.ICMPErrorOVN, about(f.Node, GRE())),
		rx("of pim, ovn sent long ago", verdict.ICMPErrorHost, about(f.Node, L4{ProtoPIM, make([]byte, 8)})),
		rx("of vrrp of a raw socket, ovn sent", verdict.ICMPErrorHost, about(f.Node, L4{ProtoVRRP, make([]byte, 8)})),
		rx("of esp that the host uses, too", verdict.ICMPErrorHost, about(f.Node, ESP())),
		rx("of another node's", verdict.ICMPErrorHost, about(f.Peer, TCP(snatPort, 80, SYN))),
		rx("of the second address", verdict.ICMPErrorHost, about(f.Second, TCP(snatPort, 80, SYN))),
		rx("of a later fragment", verdict.ICMPErrorHost, f.In(f.Unreachable(later))),
		rx("of a later fragment of ovn's gre", verdict.ICMPErrorHost, f.In(f.Unreachable(laterGRE))),
		rx("of a first fragment", verdict.ICMPErrorOVN, f.In(f.Expired(first))).inLocal(verdict.ICMPErrorHost),
		rx("of nothing", verdict.ICMPErrorHost, f.In(f.Unreachable(nil))),
		rx("of eight bytes of tcp", verdict.ICMPErrorOVN, f.In(f.Unreachable(tcp[:len(tcp)-12]))).inLocal(verdict.ICMPErrorHost),
		rx("of seven bytes", verdict.ICMPErrorHost, f.In(f.Unreachable(whole[:len(whole)-1]))),
		rx("expired, ovn's", verdict.ICMPErrorOVN, f.In(f.Expired(whole))).inLocal(verdict.ICMPErrorHost),
		rx("parameter problem, ovn's", verdict.ICMPErrorOVN, f.In(f.Parameter(whole))).inLocal(verdict.ICMPErrorHost),
		rx("too big, ovn's", verdict.ICMPErrorOVN, f.In(f.TooBig(whole))).inLocal(verdict.ICMPErrorHost),
		rx("too big, the host's", verdict.ICMPErrorHost, f.In(f.TooBig(f.Sent(f.Node, TCP(sshPort, 4000, ACK))))),
		rx("to the second address, ovn's", verdict.ICMPErrorOVN, f.Rx(f.Foreign, f.Second, f.Unreachable(whole))).inLocal(verdict.ICMPErrorHost),
	}
	if f.v6() {
		opts := IP{Src: f.Node, Dst: f.Remote, L4: UDP(snatPort, 53), Ext: []Ext{DestOpts(0)}}.Bytes()
		mapped := netip.AddrFrom16(V4.Node.As16())

		return append(rows,
			rx("of destination options", verdict.ICMPErrorOVN, f.In(f.Unreachable(opts))).inLocal(verdict.ICMPErrorHost),
			rx("of an IPv4-mapped address", verdict.ICMPErrorHost, about(mapped, UDP(snatPort, 53))))
	}

	opts := IP{Src: f.Node, Dst: f.Remote, L4: UDP(snatPort, 53), Options: make([]byte, 8)}.Bytes()

	return append(rows,
		rx("of options", verdict.ICMPErrorOVN, f.In(f.Unreachable(opts))).inLocal(verdict.ICMPErrorHost),
		rx("redirect, ovn's", verdict.ICMPErrorOVN, f.In(f.ICMP(5, 1, 0, whole))).inLocal(verdict.ICMPErrorHost),
		rx("source quench, ovn's", verdict.ICMPErrorOVN, f.In(f.ICMP(4, 0, 0, whole))).inLocal(verdict.ICMPErrorHost))
}

// vipRows cover ICMP "too big" to a VIP.
func vipRows(f Family) []row {
	vip := func(l4 L4) []byte { return f.Rx(f.Foreign, f.VIP, l4) }

	return []row{
		rx("of a service's reply", verdict.ICMPErrorOVN, vip(f.TooBig(f.Sent(f.VIP, TCP(vipPort, 4000, ACK))))).inLocal(verdict.ICMPErrorHost),
		rx("of another port's", verdict.ICMPVIP, vip(f.TooBig(f.Sent(f.VIP, TCP(444, 4000, ACK))))).inLocal(verdict.ICMPErrorHost),
		rx("of a host endpoint's reply", verdict.ICMPErrorHost, vip(f.TooBig(f.Sent(f.VIP, TCP(vipHosted, 4000, ACK))))),
		rx("of nothing", verdict.ICMPVIP, vip(f.TooBig(nil))).inLocal(verdict.ICMPErrorHost),
		rx("of a later fragment", verdict.ICMPVIP, vip(f.TooBig(IP{Src: f.VIP, Dst: f.Remote, L4: Part(ProtoTCP), Fragment: &Fragment{ID: 1, Offset: 24}}.Bytes()))).inLocal(verdict.ICMPErrorHost),
		rx("unreachable instead", verdict.ICMPErrorHost, vip(f.Unreachable(nil))),
		rx("expired instead", verdict.ICMPErrorHost, vip(f.Expired(nil))),
		rx("to the node instead", verdict.ICMPErrorHost, f.In(f.TooBig(nil))),
		rx("to an unknown address instead", verdict.ICMPErrorHost, f.Rx(f.Remote, f.Foreign, f.TooBig(nil))),
	}
}

// fragmentRows cover fragments.
func fragmentRows(f Family) []row {
	part := func(dst netip.Addr, id uint32, offset uint16, l4 L4) []byte {
		return IP{Src: f.Remote, Dst: dst, L4: l4, Fragment: &Fragment{ID: id, Offset: offset, More: offset == 0}}.Frame(NodeMAC, PeerMAC)
	}
	udp := func(port uint16) L4 { return UDP(53, port, make([]byte, 16)...) }
	later := Part(ProtoUDP)

	return []row{
		rx("first, ovn's", verdict.SNATPort, part(f.Node, 101, 0, udp(snatPort))).inLocal(verdict.Default),
		rx("first, the host's", verdict.Default, part(f.Node, 102, 0, udp(53))),
		rx("first, nodeport", verdict.Service, part(f.Node, 103, 0, udp(nodePortU))).inLocal(verdict.ServiceLocal),
		rx("first, vip", verdict.Service, part(f.VIP, 104, 0, udp(vipPort))).inLocal(verdict.ServiceLocal),
		rx("first, geneve", verdict.Geneve, part(f.Node, 105, 0, udp(genevePort))),
		rx("first, echo reply to ovn", verdict.ICMPEchoReplyNS, part(f.Node, 106, 0, f.Pong(askedID))),
		rx("first, ping", verdict.ICMPEcho, part(f.Node, 107, 0, f.Ping(1))),
		rx("first, unknown address", verdict.NotOurs, part(f.Foreign, 108, 0, udp(snatPort))),
		rx("first, gre", verdict.ProtoNS, part(f.Node, 109, 0, GRE())),
		rx("first, bfd", verdict.Default, part(f.Node, 110, 0, udp(bfdPort))),
		rx("first, syn", verdict.SNATSyn, part(f.Node, 111, 0, TCP(53, snatPort, SYN, make([]byte, 4)...))).inLocal(verdict.Default),
		rx("later, ovn's", verdict.FragmentOVN, part(f.Node, fragOVN, 1480, later)),
		rx("later, the host's", verdict.Fragment, part(f.Node, fragHost, 1480, later)),
		rx("later, ovn's long ago", verdict.FragmentEarly, part(f.Node, fragOVNOld, 1480, later)),
		rx("later, the host's long ago", verdict.FragmentEarly, part(f.Node, fragHostOld, 1480, later)),
		rx("later, first to both", verdict.FragmentEarly, part(f.Node, fragBoth, 1480, later)),
		rx("later, before its first", verdict.FragmentEarly, part(f.Node, fragNone, 1480, later)),
		rx("later, second address", verdict.FragmentEarly, part(f.Second, fragNone, 1480, later)),
		rx("later, vip", verdict.FragmentEarly, part(f.VIP, fragNone, 1480, later)),
		rx("later, unknown address", verdict.NotOurs, part(f.Foreign, fragNone, 1480, later)),
		rx("later, of another sender", verdict.FragmentEarly, IP{Src: f.Foreign, Dst: f.Node, L4: later, Fragment: &Fragment{ID: fragOVN, Offset: 24}}.Frame(NodeMAC, PeerMAC)),
		rx("later, looks like geneve", verdict.FragmentEarly, part(f.Node, fragNone, 24, udp(genevePort))),
		rx("later, broadcast", verdict.Multicast, IP{Src: f.Remote, Dst: f.Node, L4: later, Fragment: &Fragment{ID: fragOVN, Offset: 24}}.Frame(Broadcast, PeerMAC)),
		tx("first", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: UDP(snatPort, 53), Fragment: &Fragment{ID: 1, More: true}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
		tx("later", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: later, Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
		tx("later of a ping", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: Part(f.icmp), Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)),
	}
}
