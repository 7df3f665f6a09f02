package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// ovnRows are packets from OVN, without neighbour discovery and fragments.
func ovnRows(f Family) []row {
	from := func(src netip.Addr, l4 L4) []byte { return f.Tx(src, f.Remote, l4) }
	to := func(dst netip.Addr, l4 L4) []byte { return f.Tx(f.Node, dst, l4) }
	forged := func(src, dst netip.Addr, l4 L4) []byte {
		return IP{Src: src, Dst: dst, L4: l4}.Frame(PeerMAC, OtherMAC)
	}

	return []row{
		tx("tcp", verdict.OutPlain, f.Out(TCP(snatPort, 80, SYN))).inLocal(verdict.LocalOut),
		tx("udp", verdict.OutPlain, f.Out(UDP(snatPort, 53))).inLocal(verdict.LocalOut),
		tx("sctp", verdict.OutPlain, f.Out(SCTP(snatPort, 80))).inLocal(verdict.LocalOut),
		tx("nodeport's reply", verdict.OutPlain, f.Out(TCP(nodePort, 4000, SYN|ACK))).inLocal(verdict.LocalOut),
		tx("udp from a host socket's port", verdict.HostOwned, f.Out(UDP(udpSocket, 56))).inLocal(verdict.LocalOut),
		tx("udp from a host socket's port, first fragment", verdict.HostOwned, IP{Src: f.Node, Dst: f.Remote, L4: UDP(udpSocket, 56), Fragment: &Fragment{ID: 1, More: true}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
		tx("udp from a host socket's port, later fragment", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
		tx("udp from a gate without a socket", verdict.OutPlain, f.Out(UDP(staleGate, 56))).inLocal(verdict.LocalOut),
		tx("sctp from a host socket's port", verdict.OutPlain, f.Out(SCTP(udpSocket, 56))).inLocal(verdict.LocalOut),
		tx("tcp from a gated port", verdict.OutPlain, f.Out(TCP(tcpSocket, 56, ACK))).inLocal(verdict.LocalOut),
		tx("vip's reply", verdict.OutPlain, from(f.VIP, TCP(vipPort, 4000, SYN|ACK))),
		tx("egress ip's", verdict.OutPlain, from(f.Egress, TCP(40000, 80, SYN))),
		tx("udp of an egress ip from a host socket's port", verdict.OutPlain, from(f.Egress, UDP(udpSocket, 56))),
		tx("ping", verdict.OutLearned, f.Out(f.Ping(20))),
		tx("ping of an egress ip", verdict.OutPlain, from(f.Egress, f.Ping(20))),
		tx("ping reply", verdict.OutPlain, f.Out(f.Pong(20))),
		tx("error", verdict.OutPlain, f.Out(f.Unreachable(nil))),
		tx("gre", verdict.OutLearned, to(f.Peer, GRE())),
		tx("esp that the host uses with the peer", verdict.HostOwned, f.Out(ESP())),
		tx("esp with another peer", verdict.OutLearned, to(f.Peer, ESP())),
		tx("vrrp of a raw socket", verdict.HostOwned, f.Out(L4{ProtoVRRP, make([]byte, 8)})),
		tx("ospf of a raw socket, another peer", verdict.HostOwned, to(f.Peer, L4{ProtoOSPF, make([]byte, 24)})),
		tx("vrrp of an egress ip", verdict.OutPlain, from(f.Egress, L4{ProtoVRRP, make([]byte, 8)})),
		tx("vrrp to the host", verdict.Hairpin, to(f.Second, L4{ProtoVRRP, make([]byte, 8)})),
		tx("gre of a routable pod", verdict.OutPlain, from(f.Routable, GRE())),
		tx("geneve of a pod", verdict.PodTunnel, f.Out(UDP(snatPort, genevePort))),
		tx("geneve of a pod, as a reply", verdict.PodTunnel, f.Out(UDP(nodePortU, genevePort))),
		tx("geneve of a pod, first fragment", verdict.PodTunnel, IP{Src: f.Node, Dst: f.Remote, L4: UDP(snatPort, genevePort), Fragment: &Fragment{ID: 1, More: true}}.Frame(PeerMAC, NodeMAC)),
		tx("geneve of a pod, later fragment", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
		tx("geneve of a pod, wrong MAC", verdict.PodTunnel, forged(f.Node, f.Remote, UDP(snatPort, genevePort))),
		tx("geneve of a pod, from a routable address", verdict.PodTunnel, from(f.Routable, UDP(4000, genevePort))),
		tx("geneve of a pod, from the tunnel address", verdict.PodTunnel, from(f.Encap, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to another node", verdict.PodTunnel, to(f.Peer, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to another node's inner address", verdict.PodTunnel, to(f.InnerPeer, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to the host", verdict.PodTunnel, to(f.Node, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to the host's second address", verdict.PodTunnel, to(f.Second, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to a service", verdict.PodTunnel, to(f.ClusterIP, UDP(snatPort, genevePort))),
		tx("geneve of a pod, to an allowed network", verdict.OutPlain, to(f.Foreign, UDP(snatPort, genevePort))).inLocal(verdict.LocalOut),
		tx("geneve of a pod, to an allowed network, wrong MAC", verdict.BadMAC, forged(f.Node, f.Foreign, UDP(snatPort, genevePort))),
		tx("geneve port over tcp", verdict.OutPlain, f.Out(TCP(snatPort, genevePort, SYN))).inLocal(verdict.LocalOut),
		tx("geneve as source port", verdict.OutPlain, f.Out(UDP(genevePort, snatPort))).inLocal(verdict.LocalOut),
		tx("tcp, wrong MAC", verdict.BadMAC, forged(f.Node, f.Remote, TCP(snatPort, 80, SYN))),
		tx("udp, wrong MAC", verdict.BadMAC, forged(f.Pod, f.ClusterIP, UDP(snatPort, 80))),
		tx("pod", verdict.Unsnated, from(f.Pod, TCP(4000, 80, SYN))),
		tx("pod's ping", verdict.Unsnated, from(f.Pod, f.Ping(1))),
		tx("former address, tcp", verdict.Unsnated, from(f.Former, TCP(snatPort, 80, SYN))),
		tx("former address, udp", verdict.Unsnated, from(f.Former, UDP(snatPort, 53))),
		tx("former address, sctp", verdict.Unsnated, from(f.Former, SCTP(snatPort, 80))),
		tx("former address, ping", verdict.Unsnated, from(f.Former, f.Ping(20))),
		tx("former address, error", verdict.Unsnated, from(f.Former, f.Unreachable(nil))),
		tx("former address, gre", verdict.Unsnated, from(f.Former, GRE())),
		tx("former address, fragment", verdict.Unsnated, IP{Src: f.Former, Dst: f.Remote, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)),
		tx("former address to the host", verdict.Hairpin, f.Tx(f.Former, f.Node, TCP(snatPort, sshPort, SYN))),
		tx("routable pod", verdict.OutPlain, from(f.Routable, TCP(4000, 80, SYN))),
		tx("routable pod's ping", verdict.OutPlain, from(f.Routable, f.Ping(1))),
		tx("to a service", verdict.SvcLeak, to(f.ClusterIP, TCP(snatPort, 443, SYN))),
		tx("pod to a service", verdict.SvcLeak, f.Tx(f.Pod, f.ClusterIP, UDP(4000, 53))),
		tx("routable pod to a service", verdict.SvcLeak, f.Tx(f.Routable, f.ClusterIP, UDP(4000, 53))),
		tx("to a vip", verdict.OutPlain, to(f.VIP, TCP(snatPort, 443, SYN))).inLocal(verdict.LocalOut),
		tx("to another node", verdict.OutPlain, to(f.Peer, TCP(snatPort, sshPort, SYN))).inLocal(verdict.LocalOut),
		tx("hairpin to the node", verdict.Hairpin, f.Tx(f.Masquerade, f.Node, TCP(4000, 10250, SYN))),
		tx("hairpin, node to itself", verdict.Hairpin, to(f.Node, TCP(snatPort, 10250, SYN))),
		tx("hairpin to the second address", verdict.Hairpin, to(f.Second, TCP(snatPort, 10250, SYN))),
		tx("hairpin, ping", verdict.Hairpin, to(f.Second, f.Ping(1))),
		tx("hairpin, wrong MAC", verdict.Hairpin, forged(f.Node, f.Second, UDP(snatPort, 53))),
		tx("hairpin of a pod", verdict.Hairpin, f.Tx(f.Pod, f.Second, UDP(4000, 53))),
		tx("hairpin from a service, to any peer", verdict.Hairpin, f.Tx(f.ClusterIP, f.Foreign, TCP(443, 4000, SYN|ACK))),
		tx("hairpin from a service, to a service", verdict.Hairpin, f.Tx(f.ClusterIP, f.ClusterIP, UDP(53, 4000))),
		tx("to a masquerade address", verdict.SvcLeak, to(f.Masquerade, TCP(snatPort, 443, SYN))),
		tx("pod to a masquerade address", verdict.SvcLeak, f.Tx(f.Pod, f.Masquerade, UDP(4000, 53))),
		tx("hairpin, bfd", verdict.Hairpin, to(f.Second, UDP(4000, bfdPort))),
		tx("too big to another node", verdict.PMTUD, to(f.Peer, f.TooBig(f.Sent(f.Node, UDP(1, 2))))),
		tx("too big of a pod's to another node", verdict.PMTUD, f.Tx(f.Pod, f.Peer, f.TooBig(nil))),
		tx("too big to another node, wrong MAC", verdict.PMTUD, forged(f.Node, f.Peer, f.TooBig(nil))),
		tx("too big to anyone else", verdict.OutPlain, to(f.Foreign, f.TooBig(nil))),
		tx("unreachable to another node", verdict.OutPlain, to(f.Peer, f.Unreachable(nil))),
	}
}

// oversizedRows have lengths around the MTU.
func oversizedRows(f Family) []row {
	long := func(src netip.Addr, l4 func(n int) L4, size int) []byte {
		empty := len(IP{Src: src, Dst: f.Remote, L4: l4(0)}.Bytes())
		return f.Tx(src, f.Remote, l4(size-empty))
	}
	tcp := func(n int) L4 { return TCP(nodePort, 4000, ACK, make([]byte, n)...) }
	ping := func(n int) L4 { return f.ICMP(f.echoReply, 0, 20<<16, make([]byte, n)) }

	return []row{
		tx("node, as long as may be", verdict.OutPlain, long(f.Node, tcp, mtu)).inLocal(verdict.LocalOut),
		tx("node, a byte more", verdict.OutPlain, long(f.Node, tcp, mtu+1)).inLocal(verdict.Oversized),
		tx("vip, as long as may be", verdict.OutPlain, long(f.VIP, tcp, mtu)),
		tx("vip, a byte more", verdict.OutPlain, long(f.VIP, tcp, mtu+1)).inLocal(verdict.Oversized),
		tx("ping reply, as long as may be", verdict.OutPlain, long(f.Node, ping, mtu)),
		tx("ping reply, a byte more", verdict.OutPlain, long(f.Node, ping, mtu+1)).inLocal(verdict.Oversized),
		tx("pod, a byte more", verdict.Unsnated, long(f.Pod, tcp, mtu+1)),
		rx("from the wire, a byte more", verdict.Service, IP{Src: f.Remote, Dst: f.Node, L4: TCP(4000, nodePort, ACK, make([]byte, mtu)...)}.Frame(NodeMAC, PeerMAC)).inLocal(verdict.ServiceLocal),
	}
}

// hostRows are packets that the host sends through the gateway bridge, in bridged only.
func hostRows(f Family) []row {
	to := func(dst netip.Addr, l4 L4) []byte { return f.Tx(f.Node, dst, l4) }

	rows := []row{
		hx("ssh", verdict.HostOut, f.Out(TCP(sshPort, 4000, ACK))),
		hx("from the range", verdict.HostOut, f.Out(UDP(snatPort, 53))),
		hx("geneve", verdict.HostOut, to(f.Peer, UDP(snatPort, genevePort))),
		hx("geneve to a service", verdict.HostOut, to(f.ClusterIP, UDP(snatPort, genevePort))),
		hx("geneve port over tcp, to a service", verdict.HostOVN, to(f.ClusterIP, TCP(4000, genevePort, SYN))),
		hx("service, tcp", verdict.HostOVN, to(f.ClusterIP, TCP(4000, 443, SYN))),
		hx("service, udp", verdict.HostOVN, to(f.ClusterIP, UDP(4000, 53))),
		hx("service, ping", verdict.HostOVN, to(f.ClusterIP, f.Ping(1))),
		hx("service, later fragment", verdict.HostOVN, IP{Src: f.Node, Dst: f.ClusterIP, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 1, Offset: 24}}.Frame(PeerMAC, NodeMAC)),
		hx("service, other MAC", verdict.HostOVN, IP{Src: f.Node, Dst: f.ClusterIP, L4: UDP(4000, 53)}.Frame(PeerMAC, OtherMAC)),
		hx("masquerade address", verdict.HostOVN, to(f.Masquerade, TCP(4000, 443, ACK))),
		hx("vip", verdict.HostOut, to(f.VIP, TCP(4000, vipPort, SYN))),
		hx("pod", verdict.HostOut, to(f.Pod, TCP(4000, 80, SYN))),
		hx("another node", verdict.HostOut, to(f.Peer, TCP(4000, sshPort, SYN))),
		hx("ping", verdict.HostOut, f.Out(f.Ping(1))),
		hx("too big to another node", verdict.HostOut, to(f.Peer, f.TooBig(nil))),
		hx("bfd", verdict.HostOut, to(f.Foreign, UDP(4000, bfdPort))),
		hx("tagged, to a service", verdict.HostOut, Tag(vlan, to(f.ClusterIP, UDP(4000, 53)))),
		hx("lldp", verdict.HostOut, Ether(Broadcast, NodeMAC, EtherLLDP, make([]byte, 46))),
	}
	if f.v6() {
		return append(rows,
			hx("solicitation", verdict.HostOut, ndFrame(Group6, NodeMAC, IP{Src: f.Node, Dst: allNodes, L4: Solicit(f.Remote)})),
			hx("announcement", verdict.HostOut, ndFrame(Group6, NodeMAC, IP{Src: f.Foreign, Dst: allNodes, L4: Advert(f.Foreign, false)})))
	}

	return append(rows,
		hx("arp request", verdict.HostOut, Ether(Broadcast, NodeMAC, EtherARP, ARP(1, NodeMAC, f.Node, f.Remote))),
		hx("arp announcement", verdict.HostOut, Ether(Broadcast, NodeMAC, EtherARP, ARP(1, NodeMAC, f.Foreign, f.Foreign))))
}

// tunnelRows apply to a node with a tunnel address of the userspace datapath.
func tunnelRows(f Family) []row {
	tunnel := UDP(snatPort, genevePort, make([]byte, 40)...)
	forged := func(l4 L4) []byte { return IP{Src: f.Encap, Dst: f.Peer, L4: l4}.Frame(PeerMAC, OtherMAC) }

	rows := []row{
		rx("geneve", verdict.GeneveOVN, f.Rx(f.Peer, f.Encap, tunnel)),
		rx("geneve, first fragment", verdict.GeneveOVN, IP{Src: f.Peer, Dst: f.Encap, L4: tunnel, Fragment: &Fragment{ID: 120, More: true}}.Frame(NodeMAC, PeerMAC)),
		rx("geneve to the node", verdict.Geneve, f.Rx(f.Peer, f.Node, tunnel)),
		rx("ssh to the tunnel address", verdict.Default, f.Rx(f.Remote, f.Encap, TCP(4000, sshPort, SYN))),
		rx("range of the tunnel address", verdict.Default, f.Rx(f.Remote, f.Encap, UDP(53, snatPort))),
		rx("error about the tunnel", verdict.ICMPErrorOVN, f.In(f.TooBig(f.Sent(f.Encap, tunnel)))),
		rx("error about the node's geneve", verdict.ICMPErrorHost, f.In(f.TooBig(f.Sent(f.Node, tunnel)))),
		tx("geneve", verdict.EncapOut, f.Tx(f.Encap, f.Peer, tunnel)),
		tx("geneve, other MAC", verdict.EncapOut, forged(tunnel)),
		tx("geneve from the node", verdict.PodTunnel, f.Tx(f.Node, f.Peer, tunnel)),
		tx("other udp, other MAC", verdict.BadMAC, forged(UDP(snatPort, genevePort+1))),
		tx("other udp", verdict.OutPlain, f.Tx(f.Encap, f.Peer, UDP(snatPort, 53))),
	}
	if f.v6() {
		return rows
	}

	return append(rows,
		tx("arp", verdict.EncapOut, Ether(Broadcast, OtherMAC, EtherARP, ARP(1, OtherMAC, f.Encap, f.Peer))),
		tx("arp of another, other MAC", verdict.BadMAC, Ether(Broadcast, OtherMAC, EtherARP, ARP(1, OtherMAC, f.Node, f.Peer))))
}

// plainRows apply to a node without optional features: no BFD, no takeover, no routable pods, no
// masquerade prefixes.
func plainRows(f Family) []row {
	return []row{
		rx("bfd", verdict.Default, f.In(UDP(4000, bfdPort, make([]byte, 24)...))),
		rx("connection of before", verdict.Default, f.In(TCP(443, takenPort, ACK))),
		rx("error about it", verdict.ICMPErrorHost, f.In(f.Expired(f.Sent(f.Node, TCP(takenPort, 443, ACK))))),
		rx("routable pod", verdict.ClusterDestination, f.Rx(f.Remote, f.Routable, TCP(80, 8080, SYN))),
		rx("range", verdict.SNATPort, f.In(TCP(80, snatPort, ACK))).inLocal(verdict.Default),
		tx("bfd", verdict.OutPlain, f.Out(UDP(4000, bfdPort, make([]byte, 24)...))).inLocal(verdict.LocalOut),
		tx("routable pod", verdict.Unsnated, f.Tx(f.Routable, f.Remote, TCP(80, 8080, SYN))),
		tx("geneve of a pod, no network is allowed", verdict.PodTunnel, f.Tx(f.Node, f.Foreign, UDP(snatPort, genevePort))),
		tx("longer than any MTU", verdict.OutPlain, f.Tx(f.VIP, f.Remote, TCP(80, 8080, ACK, make([]byte, mtu)...))),
		hx("masquerade address", verdict.HostOut, f.Tx(f.Node, f.Masquerade, TCP(80, 8080, SYN))),
		hx("service", verdict.HostOVN, f.Tx(f.Node, f.ClusterIP, TCP(80, 8080, SYN))),
	}
}

// apartRows apply to a node with a missing interface.
func apartRows(f Family) []row {
	return []row{
		rx("ssh", verdict.Default, f.In(TCP(4000, sshPort, SYN))),
		rx("range", verdict.PassUnconfigured, f.In(UDP(53, snatPort))).inLocal(verdict.Default),
		rx("nodeport", verdict.PassUnconfigured, f.In(TCP(4000, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("egress ip", verdict.PassUnconfigured, f.Rx(f.Remote, f.Egress, UDP(53, 4000))),
		rx("early fragment", verdict.PassUnconfigured, IP{Src: f.Remote, Dst: f.Node, L4: Part(ProtoUDP), Fragment: &Fragment{ID: fragNone, Offset: 24}}.Frame(NodeMAC, PeerMAC)),
		rx("bfd", verdict.PassUnconfigured, f.In(UDP(4000, bfdPort))),
		rx("geneve", verdict.Geneve, f.In(UDP(4000, genevePort))),
		tx("tcp", verdict.NoUplink, f.Out(TCP(snatPort, 80, SYN))).inLocal(verdict.LocalOut),
		tx("wrong MAC", verdict.NoUplink, IP{Src: f.Node, Dst: f.Remote, L4: UDP(1, 2)}.Frame(PeerMAC, OtherMAC)),
		tx("geneve of a pod", verdict.NoUplink, f.Out(UDP(snatPort, genevePort))),
		tx("to a service", verdict.NoUplink, f.Tx(f.Node, f.ClusterIP, UDP(1, 2))),
		tx("hairpin", verdict.Hairpin, f.Tx(f.Node, f.Second, UDP(1, 2))),
		hx("ssh", verdict.HostOut, f.Out(TCP(sshPort, 4000, ACK))),
		hx("service", verdict.HostOVN, f.Tx(f.Node, f.ClusterIP, UDP(1, 2))),
	}
}

// rangeRows apply to a node with SNAT range 32768 to 40959.
func rangeRows(f Family) []row {
	return []row{
		rx("below", verdict.Default, f.In(UDP(53, 32767))),
		rx("first", verdict.SNATPort, f.In(UDP(53, 32768))).inLocal(verdict.Default),
		rx("last", verdict.SNATPort, f.In(TCP(53, 40959, ACK))).inLocal(verdict.Default),
		rx("above", verdict.Default, f.In(UDP(53, 40960))),
		rx("the usual one", verdict.Default, f.In(TCP(53, snatPort, ACK))),
		rx("a socket above", verdict.Default, f.In(UDP(55, udpSocket))),
		rx("connection of before, in the range", verdict.SNATPort, f.In(TCP(443, takenPort, ACK))).inLocal(verdict.Default),
		tx("from a gated port above", verdict.OutPlain, f.Out(UDP(udpSocket, 57))).inLocal(verdict.LocalOut),
	}
}

// oneFamilyRows apply to a node with a gateway router that has no address of this family.
func oneFamilyRows(f Family) []row {
	return []row{
		rx("range", verdict.Default, f.In(UDP(53, snatPort))),
		rx("ssh", verdict.Default, f.In(TCP(4000, sshPort, SYN))),
		rx("echo reply", verdict.ICMPEchoReply, f.In(f.Pong(askedID))),
		rx("gre", verdict.Default, f.In(GRE())),
		rx("nodeport", verdict.Service, f.In(TCP(4000, nodePort, SYN))).inLocal(verdict.ServiceLocal),
		rx("geneve", verdict.Geneve, f.In(UDP(4000, genevePort))),
		tx("tcp", verdict.OutPlain, f.Out(TCP(snatPort, 80, SYN))),
		tx("ping", verdict.OutPlain, f.Out(f.Ping(1))),
	}
}
