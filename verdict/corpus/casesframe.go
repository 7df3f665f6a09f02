package corpus

import (
	"encoding/binary"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// frameRows cover Ethernet and malformed packets.
func frameRows(f Family) []row {
	ip := func(dst verdict.MAC, l4 L4) []byte { return IP{Src: f.Remote, Dst: f.Node, L4: l4}.Frame(dst, PeerMAC) }
	cut := func(n int, frame []byte) []byte { return frame[:len(frame)-n] }
	udp := UDP(53, snatPort)

	rows := []row{
		rx("other MAC", verdict.OtherMAC, ip(OtherMAC, udp)),
		rx("other MAC, ssh", verdict.OtherMAC, ip(OtherMAC, TCP(4000, sshPort, SYN))),
		rx("other MAC, not IP", verdict.OtherMAC, Ether(OtherMAC, PeerMAC, EtherLLDP, make([]byte, 46))),
		rx("broadcast", verdict.Multicast, ip(Broadcast, udp)),
		rx("multicast", verdict.Multicast, ip(Group4, udp)),
		rx("broadcast, nodeport", verdict.Multicast, ip(Broadcast, TCP(4000, nodePort, SYN))),
		rx("broadcast, geneve", verdict.Geneve, ip(Broadcast, UDP(snatPort, genevePort))),
		rx("multicast to a pod", verdict.Multicast, IP{Src: f.Remote, Dst: f.Routable, L4: udp}.Frame(Group4, PeerMAC)),
		rx("lldp", verdict.NotIP, Ether(verdict.MAC{1, 0x80, 0xc2, 0, 0, 0xe}, PeerMAC, EtherLLDP, make([]byte, 46))),
		rx("unknown type", verdict.NotIP, Ether(NodeMAC, PeerMAC, 0x88b5, make([]byte, 46))),
		rx("length instead of a type", verdict.NotIP, Ether(NodeMAC, PeerMAC, 46, make([]byte, 46))),
		rx("ports cut short", verdict.Malformed, cut(5, f.In(UDP(53, snatPort)))).mangled(),
		rx("no flags", verdict.SNATPort, cut(8, f.In(TCP(80, snatPort, SYN)))).inLocal(verdict.Default).mangled(),
		rx("trailer", verdict.SNATPort, join(f.In(udp), make([]byte, 10))).inLocal(verdict.Default),
		rx("wrong version", verdict.Malformed, change(f.In(udp), 14, 0x55)).mangled(),
		tx("wrong version", verdict.OutPlain, change(f.Out(udp), 14, 0x55)).mangled(),
		tx("ports cut short", verdict.OutPlain, cut(5, f.Out(UDP(snatPort, 53)))).mangled(),
		tx("ports cut short, pod", verdict.Unsnated, cut(5, f.Tx(f.Pod, f.Remote, udp))).mangled(),
		tx("ports cut short, service", verdict.SvcLeak, cut(5, f.Tx(f.Node, f.ClusterIP, udp))).mangled(),
		tx("not IP", verdict.OutPlain, Ether(PeerMAC, NodeMAC, EtherLLDP, make([]byte, 46))),
		tx("not IP, other MAC", verdict.BadMAC, Ether(PeerMAC, OtherMAC, EtherLLDP, make([]byte, 46))),
	}
	if f.v6() {
		return append(rows, headerRows(f)...)
	}

	return append(rows, optionRows(f)...)
}

func change(frame []byte, at int, to byte) []byte {
	frame[at] = to
	return frame
}

func optionRows(f Family) []row {
	options := func(n int, dst netip.Addr, l4 L4) []byte {
		return IP{Src: f.Remote, Dst: dst, L4: l4, Options: make([]byte, n)}.Frame(NodeMAC, PeerMAC)
	}
	df := f.In(UDP(53, snatPort))
	binary.BigEndian.PutUint16(df[20:], 0x4000)

	return []row{
		rx("options", verdict.SNATPort, options(4, f.Node, UDP(53, snatPort))).inLocal(verdict.Default),
		rx("all options there can be", verdict.SNATPort, options(40, f.Node, TCP(53, snatPort, ACK))).inLocal(verdict.Default),
		rx("options, ssh", verdict.Default, options(8, f.Node, TCP(53, sshPort, ACK))),
		rx("options, nodeport", verdict.Service, options(8, f.Node, TCP(53, nodePort, ACK))).inLocal(verdict.ServiceLocal),
		rx("options, geneve", verdict.Geneve, options(8, f.Node, UDP(53, genevePort))),
		rx("options, echo reply", verdict.ICMPEchoReplyNS, options(4, f.Node, f.Pong(askedID))),
		rx("do not fragment", verdict.SNATPort, df).inLocal(verdict.Default),
		rx("header of four words", verdict.Malformed, change(f.In(UDP(53, snatPort)), 14, 0x44)).mangled(),
		rx("IPv6 in an IPv4 frame", verdict.Malformed, Ether(NodeMAC, PeerMAC, EtherIPv4, IP{Src: V6.Remote, Dst: V6.Node, L4: UDP(53, snatPort)}.Bytes())).mangled(),
	}
}

// headerRows cover IPv6 extension headers.
func headerRows(f Family) []row {
	ext := func(l4 L4, list ...Ext) []byte {
		return IP{Src: f.Remote, Dst: f.Node, L4: l4, Ext: list}.Frame(NodeMAC, PeerMAC)
	}
	mapped := netip.AddrFrom16(V4.Node.As16())

	seven := make([]Ext, 7)
	for i := range seven {
		seven[i] = DestOpts(0)
	}

	udp, atomic := UDP(53, snatPort), Ext{extFragment, 0, join(be16(0), be32(77))}

	return []row{
		rx("hop by hop", verdict.SNATPort, ext(udp, HopByHop(0))).inLocal(verdict.Default),
		rx("hop by hop, ssh", verdict.Default, ext(TCP(53, sshPort, SYN), HopByHop(0))),
		rx("routing", verdict.SNATPort, ext(udp, Routing(2))).inLocal(verdict.Default),
		rx("destination options", verdict.SNATPort, ext(udp, DestOpts(3))).inLocal(verdict.Default),
		rx("destination options, syn", verdict.SNATSyn, ext(TCP(53, snatPort, SYN), DestOpts(0))).inLocal(verdict.Default),
		rx("destination options, nodeport", verdict.Service, ext(TCP(53, nodePort, SYN), DestOpts(0))).inLocal(verdict.ServiceLocal),
		rx("destination options, geneve", verdict.Geneve, ext(UDP(53, genevePort), DestOpts(0))),
		rx("destination options, echo reply", verdict.ICMPEchoReplyNS, ext(f.Pong(askedID), DestOpts(0))),
		rx("destination options, socket", verdict.HostSocket, ext(UDP(53, udpSocket), DestOpts(0))).inLocal(verdict.Default),
		rx("authentication", verdict.SNATPort, ext(udp, Auth(1))).inLocal(verdict.Default),
		rx("authentication, long", verdict.SNATPort, ext(udp, Auth(5))).inLocal(verdict.Default),
		rx("atomic fragment", verdict.SNATPort, ext(udp, atomic)).inLocal(verdict.Default),
		rx("four kinds", verdict.SNATPort, ext(udp, HopByHop(0), DestOpts(0), Routing(0), Auth(1))).inLocal(verdict.Default),
		rx("seven headers", verdict.SNATPort, ext(udp, seven...)).inLocal(verdict.Default),
		rx("eight headers", verdict.Malformed, ext(udp, append(seven, DestOpts(0))...)).mangled(),
		rx("header cut short", verdict.Malformed, ext(L4{}, DestOpts(3))[:14+40+6]).mangled(),
		rx("no next header", verdict.Default, ext(L4{Proto: 59})),
		rx("to an IPv4-mapped address", verdict.Malformed, f.Rx(f.Remote, mapped, udp)),
		rx("IPv4 in an IPv6 frame", verdict.Malformed, Ether(NodeMAC, PeerMAC, EtherIPv6, IP{Src: V4.Remote, Dst: V4.Node, L4: UDP(53, snatPort, make([]byte, 20)...)}.Bytes())).mangled(),
		tx("to an IPv4-mapped address", verdict.OutPlain, f.Tx(f.Node, mapped, UDP(80, 80))).inLocal(verdict.LocalOut),
		tx("from an IPv4-mapped address", verdict.OutPlain, f.Tx(mapped, f.Remote, UDP(80, 80))),
		tx("from an IPv4-mapped address, a listener's port", verdict.OutPlain, f.Tx(mapped, f.Remote, TCP(tcpSocket, 80, ACK))),
		tx("from an IPv4-mapped address, a udp socket's port", verdict.OutPlain, f.Tx(mapped, f.Remote, UDP(udpSocket, 80))),
		tx("from an IPv4-mapped address, gre", verdict.OutPlain, f.Tx(mapped, f.Remote, GRE())),
		tx("destination options", verdict.OutPlain, IP{Src: f.Node, Dst: f.Remote, L4: UDP(80, 80), Ext: []Ext{DestOpts(0)}}.Frame(PeerMAC, NodeMAC)).inLocal(verdict.LocalOut),
	}
}

// addressRows are decided by the address alone.
func addressRows(f Family) []row {
	to := func(dst netip.Addr, l4 L4) []byte { return f.Rx(f.Remote, dst, l4) }
	part := func(dst netip.Addr) []byte {
		return IP{Src: f.Remote, Dst: dst, L4: Part(ProtoUDP), Fragment: &Fragment{ID: 90, Offset: 24}}.Frame(NodeMAC, PeerMAC)
	}

	rows := []row{
		rx("routable pod, tcp", verdict.PodAddress, to(f.Routable, TCP(80, 8080, SYN))),
		rx("routable pod, port of the range", verdict.PodAddress, to(f.Routable, TCP(80, snatPort, SYN))),
		rx("routable pod, ping", verdict.PodAddress, to(f.Routable, f.Ping(1))),
		rx("routable pod, later fragment", verdict.PodAddress, part(f.Routable)),
		rx("routable pod, gre", verdict.PodAddress, to(f.Routable, GRE())),
		rx("pod behind nat", verdict.ClusterDestination, to(f.Pod, TCP(80, 8080, SYN))),
		rx("management port", verdict.Default, to(f.Management, TCP(80, 9100, SYN))),
		rx("management port, ping", verdict.ICMPEcho, to(f.Management, f.Ping(1))),
		rx("egress ip, tcp", verdict.OVNAddress, to(f.Egress, TCP(80, 40000, ACK))),
		rx("egress ip, udp", verdict.OVNAddress, to(f.Egress, UDP(53, 40000))),
		rx("egress ip, syn", verdict.OVNAddress, to(f.Egress, TCP(80, sshPort, SYN))),
		rx("egress ip, ping", verdict.OVNAddress, to(f.Egress, f.Ping(1))),
		rx("egress ip, error", verdict.OVNAddress, to(f.Egress, f.Unreachable(nil))),
		rx("egress ip, later fragment", verdict.OVNAddress, part(f.Egress)),
		rx("egress ip, geneve", verdict.OVNAddress, to(f.Egress, UDP(snatPort, genevePort))),
		rx("cluster ip", verdict.ClusterDestination, to(f.ClusterIP, TCP(80, 443, SYN))),
		rx("masquerade address", verdict.ClusterDestination, to(f.Masquerade, TCP(80, 443, SYN))),
		rx("another node, ssh", verdict.NotOurs, to(f.Peer, TCP(4000, sshPort, SYN))),
		rx("unknown address, ping", verdict.NotOurs, to(f.Foreign, f.Ping(1))),
		rx("former address, ping", verdict.NotOurs, to(f.Former, f.Ping(1))),
		rx("former address, range", verdict.NotOurs, to(f.Former, TCP(80, snatPort, ACK))),
	}
	if f.v6() {
		rows = append(rows,
			rx("router's link-local", verdict.OVNAddress, to(routerLLA, TCP(4000, 179, SYN))),
			rx("router's link-local, ping", verdict.OVNAddress, to(routerLLA, f.Ping(1))),
			rx("host's link-local", verdict.Default, to(hostLLA, TCP(4000, sshPort, SYN))))
	}

	return rows
}

// vlanRows cover tags on a node without a gateway VLAN. Their frames are complete.
func vlanRows(f Family) []row {
	syn, udp := f.In(TCP(4000, sshPort, SYN)), f.In(UDP(53, snatPort))

	return []row{
		rx("tagged, ssh", verdict.VLAN, Tag(vlan, syn)),
		rx("tagged, range", verdict.VLAN, Tag(vlan, udp)),
		rx("priority tag", verdict.SNATPort, Tag(5<<13, udp)).inLocal(verdict.Default),
		rx("priority tag, ssh", verdict.Default, Tag(5<<13, syn)),
		rx("priority tag of no priority", verdict.Default, Tag(0, syn)),
		rx("priority tag, drop eligible", verdict.Default, Tag(1<<12, syn)),
		rx("priority service tag", verdict.Default, tag(EtherQinQ, 7<<13, syn)),
		rx("priority tag, nodeport", verdict.Service, Tag(5<<13, f.In(TCP(4000, nodePort, SYN)))).inLocal(verdict.ServiceLocal),
		rx("priority tag, other MAC", verdict.OtherMAC, Tag(5<<13, IP{Src: f.Remote, Dst: f.Node, L4: UDP(1, 2)}.Frame(OtherMAC, PeerMAC))),
		rx("priority tag, spoofed", verdict.SpoofedSource, Tag(5<<13, f.Rx(f.Pod, f.Node, UDP(1, 2)))),
		rx("priority tag, pod", verdict.ClusterDestination, Tag(5<<13, f.Rx(f.Remote, f.Pod, UDP(1, 2)))),
		rx("priority tag, lldp", verdict.NotIP, Tag(7<<13, Ether(NodeMAC, PeerMAC, EtherLLDP, make([]byte, 46)))),
		rx("two priority tags", verdict.NestedTag, Tag(0, Tag(0, syn))),
		rx("priority tag, then another", verdict.NestedTag, Tag(0, Tag(vlan, syn))),
		rx("priority tag, then a service tag", verdict.NestedTag, Tag(0, tag(EtherQinQ, vlan, syn))),
		rx("tagged, pod", verdict.VLAN, Tag(vlan, f.Rx(f.Remote, f.Pod, UDP(1, 2)))),
		tx("priority tag", verdict.OutPlain, Tag(5<<13, f.Tx(f.Pod, f.ClusterIP, UDP(1, 2)))),
		rx("service tag", verdict.VLAN, tag(EtherQinQ, vlan, udp)),
		rx("two tags", verdict.VLAN, Tag(vlan, Tag(vlan, udp))),
		rx("tagged, other MAC", verdict.VLAN, Tag(vlan, IP{Src: f.Remote, Dst: f.Node, L4: UDP(1, 2)}.Frame(OtherMAC, PeerMAC))),
		rx("tagged, broadcast", verdict.VLAN, Tag(vlan, IP{Src: f.Remote, Dst: f.Node, L4: UDP(1, 2)}.Frame(Broadcast, PeerMAC))),
		tx("tagged", verdict.OutPlain, Tag(vlan, f.Tx(f.Pod, f.ClusterIP, UDP(1, 2)))),
		tx("tagged, other MAC", verdict.BadMAC, Tag(vlan, IP{Src: f.Node, Dst: f.Remote, L4: UDP(1, 2)}.Frame(PeerMAC, OtherMAC))),
	}
}

// ownVLANRows cover tags on a node with a gateway VLAN.
func ownVLANRows(f Family) []row {
	syn, udp := f.In(TCP(4000, sshPort, SYN)), f.In(UDP(53, snatPort))
	leak := f.Tx(f.Pod, f.Remote, UDP(1, 2))

	return []row{
		rx("untagged, ssh", verdict.VLAN, syn),
		rx("untagged, range", verdict.VLAN, udp),
		rx("another tag", verdict.VLAN, Tag(vlan+1, udp)),
		rx("priority tag", verdict.VLAN, Tag(5<<13, udp)),
		rx("priority tag, spoofed", verdict.SpoofedSource, Tag(5<<13, f.Rx(f.Pod, f.Node, UDP(1, 2)))),
		rx("priority tag, other MAC", verdict.VLAN, Tag(5<<13, IP{Src: f.Pod, Dst: f.Pod, L4: UDP(1, 2)}.Frame(OtherMAC, PeerMAC))),
		rx("two priority tags", verdict.NestedTag, Tag(0, Tag(0, syn))),
		rx("priority tag, then own", verdict.NestedTag, Tag(0, Tag(vlan, syn))),
		rx("own tag, then a priority tag", verdict.VLAN, Tag(vlan, Tag(0, syn))),
		rx("untagged, spoofed", verdict.SpoofedSource, f.Rx(f.Pod, f.Node, UDP(1, 2))),
		rx("untagged, pod", verdict.ClusterDestination, f.Rx(f.Remote, f.Pod, UDP(1, 2))),
		rx("untagged, inner vip", verdict.ClusterDestination, f.Rx(f.Remote, f.InnerVIP, TCP(4000, vipPort, SYN))),
		rx("untagged, management port", verdict.VLAN, f.Rx(f.Remote, f.InnerHost, UDP(1, 2))),
		rx("untagged, pod, other MAC", verdict.VLAN, IP{Src: f.Remote, Dst: f.Pod, L4: UDP(1, 2)}.Frame(OtherMAC, PeerMAC)),
		rx("another tag, pod", verdict.VLAN, Tag(vlan+1, f.Rx(f.Remote, f.Pod, UDP(1, 2)))),
		rx("own tag, priority", verdict.SNATPort, Tag(5<<13|vlan, udp)).inLocal(verdict.Default),
		rx("own tag, drop eligible", verdict.SNATPort, Tag(1<<12|vlan, udp)).inLocal(verdict.Default),
		rx("service tag", verdict.VLAN, tag(EtherQinQ, vlan, udp)),
		rx("two tags, both own", verdict.VLAN, Tag(vlan, Tag(vlan, udp))),
		rx("two tags, inner one own", verdict.VLAN, Tag(vlan+1, Tag(vlan, udp))),
		rx("own tag, then a service tag", verdict.VLAN, Tag(vlan, tag(EtherQinQ, vlan, udp))),
		tx("own tag", verdict.Unsnated, Tag(vlan, leak)),
		tx("untagged", verdict.Unsnated, leak),
		tx("another tag", verdict.OutPlain, Tag(vlan+1, leak)),
		tx("two tags", verdict.OutPlain, Tag(vlan, Tag(vlan, leak))),
	}
}
