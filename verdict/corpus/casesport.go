package corpus

import "github.com/ovn-ebpf/ovn-ebpf/verdict"

// portRows are decided by the local port of an unfragmented packet.
func portRows(f Family) []row {
	to := f.Node

	return []row{
		rx("ssh, syn", verdict.Default, f.In(TCP(4000, sshPort, SYN))),
		rx("ssh, ack", verdict.Default, f.In(TCP(4000, sshPort, ACK))),
		rx("reply to the host", verdict.Default, f.In(TCP(443, 40001, ACK))),
		rx("port zero", verdict.Default, f.In(UDP(0, 0))),
		rx("below the range", verdict.Default, f.In(UDP(53, 49151))),
		rx("start of the range", verdict.SNATPort, f.In(UDP(53, 49152))).inLocal(verdict.Default),
		rx("end of the range", verdict.SNATPort, f.In(UDP(53, 65535))).inLocal(verdict.Default),
		rx("range, ack", verdict.SNATPort, f.In(TCP(80, snatPort, ACK))).inLocal(verdict.Default),
		rx("range, syn", verdict.SNATSyn, f.In(TCP(80, snatPort, SYN))).inLocal(verdict.Default),
		rx("range, syn ack", verdict.SNATPort, f.In(TCP(80, snatPort, SYN|ACK))).inLocal(verdict.Default),
		rx("range, fin ack", verdict.SNATPort, f.In(TCP(80, snatPort, FIN|ACK))).inLocal(verdict.Default),
		rx("range, rst", verdict.SNATPort, f.In(TCP(80, snatPort, RST))).inLocal(verdict.Default),
		rx("range, syn fin", verdict.SNATPort, f.In(TCP(80, snatPort, SYN|FIN))).inLocal(verdict.Default),
		rx("range, syn psh", verdict.SNATSyn, f.In(TCP(80, snatPort, SYN|PSH))).inLocal(verdict.Default),
		rx("range, no flags", verdict.SNATPort, f.In(TCP(80, snatPort, 0))).inLocal(verdict.Default),
		rx("range, sctp", verdict.SNATPort, f.In(SCTP(80, snatPort))).inLocal(verdict.Default),
		rx("range, sctp to a gated port", verdict.SNATPort, f.In(SCTP(53, udpSocket))).inLocal(verdict.Default),
		rx("range, second address", verdict.Default, f.Rx(f.Remote, f.Second, TCP(80, snatPort, ACK))),
		rx("range, management port", verdict.Default, f.Rx(f.Remote, f.Management, UDP(80, snatPort))),
		rx("range, unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, TCP(80, snatPort, ACK))),
		rx("range, another node", verdict.NotOurs, f.Rx(f.Remote, f.Peer, TCP(80, snatPort, ACK))),
		rx("sctp to the host", verdict.Default, f.In(SCTP(80, 5000))),
		rx("geneve", verdict.Geneve, f.Rx(f.Peer, to, UDP(snatPort, genevePort, make([]byte, 40)...))),
		rx("geneve to the second address", verdict.Geneve, f.Rx(f.Peer, f.Second, UDP(snatPort, genevePort))),
		rx("geneve port over tcp", verdict.Default, f.In(TCP(snatPort, genevePort, ACK))),
		rx("geneve to an unknown address", verdict.NotOurs, f.Rx(f.Peer, f.Foreign, UDP(snatPort, genevePort))),
		rx("geneve as source port", verdict.SNATPort, f.In(UDP(genevePort, snatPort))).inLocal(verdict.Default),
	}
}

// socketRows cover host sockets in the SNAT range.
func socketRows(f Family) []row {
	return []row{
		rx("udp", verdict.HostSocket, f.Rx(f.Foreign, f.Node, UDP(53, udpSocket))).inLocal(verdict.Default),
		rx("udp, a connection of before", verdict.HostSocket, f.In(UDP(53, udpSocket))).inLocal(verdict.Default),
		rx("udp, of another port", verdict.HostSocket, f.In(UDP(55, udpSocket))).inLocal(verdict.Default),
		rx("udp, not gated", verdict.SNATPort, f.In(UDP(53, snatPort))).inLocal(verdict.Default),
		rx("tcp to the udp socket's port", verdict.SNATPort, f.In(TCP(53, udpSocket, ACK))).inLocal(verdict.Default),
		rx("connection", verdict.HostSocket, f.Rx(f.Node, f.Node, TCP(tcpClient, tcpSocket, ACK))).inLocal(verdict.Default),
		rx("connection, rst", verdict.HostSocket, f.Rx(f.Node, f.Node, TCP(tcpClient, tcpSocket, RST))).inLocal(verdict.Default),
		rx("listener, syn", verdict.SNATSyn, f.In(TCP(4000, tcpSocket, SYN))).inLocal(verdict.Default),
		rx("listener, no syn", verdict.SNATPort, f.In(TCP(4000, tcpSocket, RST|ACK))).inLocal(verdict.Default),
		rx("gate without a socket, tcp", verdict.SNATPort, f.In(TCP(53, staleGate, ACK))).inLocal(verdict.Default),
		rx("gate without a socket, udp", verdict.SNATPort, f.In(UDP(53, staleGate))).inLocal(verdict.Default),
	}
}

// serviceRows cover frontends.
func serviceRows(f Family) []row {
	vip := func(l4 L4) []byte { return f.Rx(f.Remote, f.VIP, l4) }

	return []row{
		rx("nodeport, syn", verdict.Service, f.In(TCP(4000, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("nodeport, ack", verdict.Service, f.In(TCP(4000, nodePort, ACK))).inLocal(verdict.ServiceLocal),
		rx("nodeport, sctp", verdict.Service, f.In(SCTP(4000, nodePort))).inLocal(verdict.ServiceLocal),
		rx("nodeport, udp", verdict.Service, f.In(UDP(4000, nodePortU))).inLocal(verdict.ServiceLocal),
		rx("nodeport, other protocol", verdict.Default, f.In(UDP(4000, nodePort))),
		rx("nodeport, next port", verdict.Default, f.In(TCP(4000, nodePort+1, SYN))),
		rx("nodeport, second address", verdict.Service, f.Rx(f.Remote, f.Second, TCP(4000, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("nodeport, management port", verdict.Default, f.Rx(f.Remote, f.Management, TCP(4000, nodePort, SYN))),
		rx("nodeport, from another node", verdict.Service, f.Rx(f.Peer, f.Node, TCP(4000, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("nodeport, connection of the host", verdict.HostConnection, f.Rx(f.Node, f.Node, TCP(connected, nodePort, ACK))).inLocal(verdict.ServiceLocal),
		rx("nodeport, connection of the host, syn", verdict.HostConnection, f.Rx(f.Node, f.Node, TCP(connected, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("nodeport, connection of the host, rst", verdict.HostConnection, f.Rx(f.Node, f.Node, TCP(connected, nodePort, RST))).inLocal(verdict.ServiceLocal),
		rx("nodeport, other peer than the connection's", verdict.Service, f.Rx(f.Node, f.Node, TCP(connected+1, nodePort, ACK))).inLocal(verdict.ServiceLocal),
		rx("nodeport, udp connection of the host", verdict.HostConnection, f.Rx(f.Node, f.Node, UDP(udpPeer, nodePortU))).inLocal(verdict.ServiceLocal),
		rx("nodeport, udp, other peer than the connection's", verdict.Service, f.Rx(f.Node, f.Node, UDP(udpPeer+1, nodePortU))).inLocal(verdict.ServiceLocal),
		rx("nodeport, udp, unconnected socket of the host", verdict.Service, f.In(UDP(4000, nodePortV))).inLocal(verdict.ServiceLocal),
		rx("nodeport, error about a connection of the host", verdict.ICMPErrorHost, f.In(f.Unreachable(IP{Src: f.Node, Dst: f.Node, L4: TCP(nodePort, connected, ACK)}.Bytes()))),
		rx("nodeport of a host endpoint, syn", verdict.ServiceHosted, f.In(TCP(4000, hostedPort, SYN))).inLocal(verdict.ServiceLocal),
		rx("nodeport of a host endpoint, ack", verdict.ServiceHosted, f.In(TCP(4000, hostedPort, ACK))).inLocal(verdict.ServiceLocal),
		rx("hostport in the range, syn", verdict.Service, f.In(TCP(4000, hostPort, SYN))).inLocal(verdict.ServiceLocal),
		rx("hostport in the range, ack", verdict.Service, f.In(TCP(4000, hostPort, ACK))).inLocal(verdict.ServiceLocal),
		rx("vip, tcp", verdict.Service, vip(TCP(4000, vipPort, SYN))).inLocal(verdict.ServiceLocal),
		rx("vip, udp", verdict.Service, vip(UDP(4000, vipPort))).inLocal(verdict.ServiceLocal),
		rx("vip of a host endpoint", verdict.ServiceHosted, vip(TCP(4000, vipHosted, SYN))).inLocal(verdict.ServiceLocal),
		rx("vip, no such port", verdict.NotOurs, vip(TCP(4000, 444, SYN))),
		rx("vip, range", verdict.NotOurs, vip(TCP(4000, snatPort, ACK))),
		rx("vip, ping", verdict.NotOurs, vip(f.Ping(askedID))),
		rx("vip, gre", verdict.NotOurs, vip(GRE())),
	}
}

// takeoverRows cover connections from before a takeover.
func takeoverRows(f Family) []row {
	return []row{
		rx("tcp", verdict.Takeover, f.In(TCP(443, takenPort, ACK))).inLocal(verdict.Default),
		rx("tcp, syn", verdict.Default, f.In(TCP(443, takenPort, SYN))),
		rx("udp", verdict.Takeover, f.In(UDP(443, takenPort))).inLocal(verdict.Default),
		rx("sctp", verdict.Takeover, f.In(SCTP(443, takenPort))).inLocal(verdict.Default),
		rx("another remote port", verdict.Default, f.In(TCP(444, takenPort, ACK))),
		rx("another remote", verdict.Default, f.Rx(f.Foreign, f.Node, TCP(443, takenPort, ACK))),
		rx("another port", verdict.Default, f.In(TCP(443, takenPort+1, ACK))),
		rx("second address", verdict.Default, f.Rx(f.Remote, f.Second, TCP(443, takenPort, ACK))),
		rx("error about it", verdict.ICMPErrorOVN, f.In(f.Expired(f.Sent(f.Node, TCP(takenPort, 443, ACK))))).inLocal(verdict.ICMPErrorHost),
	}
}

// protoRows cover protocols without ports.
func protoRows(f Family) []row {
	return []row{
		rx("gre that ovn began", verdict.ProtoNS, f.In(GRE())),
		rx("gre of another peer", verdict.Default, f.Rx(f.Foreign, f.Node, GRE())),
		rx("gre to the second address", verdict.Default, f.Rx(f.Remote, f.Second, GRE())),
		rx("gre to an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, GRE())),
		rx("esp that the host uses, too", verdict.ProtoHost, f.In(ESP())),
		rx("pim, ovn sent long ago", verdict.Default, f.In(L4{ProtoPIM, make([]byte, 8)})),
		rx("vrrp of a raw socket, ovn sent", verdict.ProtoHost, f.In(L4{ProtoVRRP, make([]byte, 8)})),
		rx("vrrp of a raw socket, another peer", verdict.ProtoHost, f.Rx(f.Foreign, f.Node, L4{ProtoVRRP, make([]byte, 8)})),
		rx("ospf of a raw socket, ovn sent", verdict.ProtoHost, f.In(L4{ProtoOSPF, make([]byte, 24)})),
		rx("vrrp to the second address", verdict.Default, f.Rx(f.Remote, f.Second, L4{ProtoVRRP, make([]byte, 8)})),
		rx("vrrp to an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, L4{ProtoVRRP, make([]byte, 8)})),
		rx("esp to the second address", verdict.Default, f.Rx(f.Remote, f.Second, ESP())),
		rx("esp of another peer", verdict.Default, f.Rx(f.Foreign, f.Node, ESP())),
		rx("unheard of", verdict.Default, f.In(L4{99, make([]byte, 24)})),
		rx("unheard of, to an unknown address", verdict.NotOurs, f.Rx(f.Remote, f.Foreign, L4{99, make([]byte, 24)})),
	}
}

// bfdRows cover BFD, which both OVN and the host may use.
func bfdRows(f Family) []row {
	packet := UDP(snatPort, bfdPort, make([]byte, 24)...)

	return []row{
		rx("to the node", verdict.BFD, f.Rx(f.Foreign, f.Node, packet)),
		rx("to the second address", verdict.BFD, f.Rx(f.Foreign, f.Second, packet)),
		rx("to an unknown address", verdict.NotOurs, f.Rx(f.Foreign, f.Peer, packet)),
		rx("its port over tcp", verdict.Default, f.In(TCP(snatPort, bfdPort, ACK))),
		rx("quoted", verdict.ICMPErrorHost, f.In(f.Unreachable(f.Sent(f.Node, UDP(bfdPort, snatPort))))),
		tx("from ovn", verdict.BFDOut, f.Tx(f.Node, f.Foreign, packet)),
		tx("from ovn, wrong MAC", verdict.BadMAC, IP{Src: f.Node, Dst: f.Foreign, L4: packet}.Frame(PeerMAC, OtherMAC)),
	}
}
