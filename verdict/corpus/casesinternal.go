package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// internalRows cover the cluster's own networks, which never appear on the wire.
func internalRows(f Family) []row {
	var rows []row

	udp, range4 := UDP(53, 4000), UDP(53, snatPort)
	for _, a := range []struct {
		name string
		addr netip.Addr
	}{
		{"pod", f.Pod}, {"last pod", f.Last}, {"cluster ip", f.ClusterIP}, {"join address", f.Join}, {"masquerade address", f.Masquerade}, {"wide network", f.Wide},
	} {
		rows = append(rows,
			rx("from a "+a.name, verdict.SpoofedSource, f.Rx(a.addr, f.Node, udp)),
			rx("from a "+a.name+", range", verdict.SpoofedSource, f.Rx(a.addr, f.Node, range4)),
			rx("from a "+a.name+", nodeport", verdict.SpoofedSource, f.Rx(a.addr, f.Node, TCP(4000, nodePort, SYN))),
			rx("from a "+a.name+", geneve", verdict.SpoofedSource, f.Rx(a.addr, f.Node, UDP(snatPort, genevePort))),
			rx("from a "+a.name+", to a pod", verdict.SpoofedSource, f.Rx(a.addr, f.Pod, udp)),
			rx("to a "+a.name, verdict.ClusterDestination, f.Rx(f.Remote, a.addr, udp)),
			rx("to a "+a.name+", ping", verdict.ClusterDestination, f.Rx(f.Remote, a.addr, f.Ping(1))),
			rx("to a "+a.name+", gre", verdict.ClusterDestination, f.Rx(f.Remote, a.addr, GRE())),
			rx("to a "+a.name+", from another node", verdict.ClusterDestination, f.Rx(f.Peer, a.addr, udp)),
		)
	}

	return append(rows, append(f.exceptions(), f.disguises()...)...)
}

// exceptions cover addresses of those networks that are on the wire nevertheless.
func (f Family) exceptions() []row {
	udp, first := UDP(53, 4000), &Fragment{ID: 130, More: true}
	part := func(id uint32, dst netip.Addr) []byte {
		return IP{Src: f.Remote, Dst: dst, L4: Part(ProtoUDP), Fragment: &Fragment{ID: id, Offset: 24}}.Frame(NodeMAC, PeerMAC)
	}

	return []row{
		rx("from beside", verdict.Default, f.Rx(f.Beside, f.Node, udp)),
		rx("to beside", verdict.NotOurs, f.Rx(f.Remote, f.Beside, udp)),
		rx("from beside, range", verdict.SNATPort, f.Rx(f.Beside, f.Node, UDP(53, snatPort))).inLocal(verdict.Default),
		rx("from a neighbour", verdict.Default, f.Rx(f.Neighbour, f.Node, udp)),
		rx("from a neighbour, range", verdict.SNATPort, f.Rx(f.Neighbour, f.Node, UDP(53, snatPort))).inLocal(verdict.Default),
		rx("to a neighbour", verdict.NotOurs, f.Rx(f.Remote, f.Neighbour, udp)),
		rx("from a next hop", verdict.ICMPErrorHost, f.Rx(f.NextHop, f.Node, f.Unreachable(nil))),
		rx("to a next hop", verdict.NotOurs, f.Rx(f.Remote, f.NextHop, udp)),
		rx("from a routable pod", verdict.Default, f.Rx(f.Routable, f.Node, udp)),
		rx("from another node", verdict.Default, f.Rx(f.InnerPeer, f.Node, TCP(4000, sshPort, SYN))),
		rx("from another node, geneve", verdict.Geneve, f.Rx(f.InnerPeer, f.Node, UDP(snatPort, genevePort))),
		rx("to another node", verdict.NotOurs, f.Rx(f.Remote, f.InnerPeer, udp)),
		rx("to an address of the host, ssh", verdict.Default, f.Rx(f.Remote, f.InnerHost, TCP(4000, sshPort, SYN))),
		rx("to an address of the host, ping", verdict.ICMPEcho, f.Rx(f.Remote, f.InnerHost, f.Ping(1))),
		rx("to an address of the host, later fragment", verdict.FragmentEarly, part(131, f.InnerHost)),
		rx("from an address of the host", verdict.SpoofedSource, f.Rx(f.InnerHost, f.Node, udp)),
		rx("egress ip", verdict.OVNAddress, f.Rx(f.Remote, f.InnerEgress, udp)),
		rx("vip", verdict.Service, f.Rx(f.Remote, f.InnerVIP, TCP(4000, vipPort, SYN))).inLocal(verdict.ServiceLocal),
		rx("vip of a host endpoint", verdict.ServiceHosted, f.Rx(f.Remote, f.InnerVIP, TCP(4000, vipHosted, SYN))).inLocal(verdict.ServiceLocal),
		rx("vip, spoofed", verdict.SpoofedSource, f.Rx(f.Pod, f.InnerVIP, TCP(4000, vipPort, SYN))),
		rx("vip, no such port", verdict.ClusterDestination, f.Rx(f.Remote, f.InnerVIP, TCP(4000, 444, SYN))),
		rx("vip, ping", verdict.ClusterDestination, f.Rx(f.Remote, f.InnerVIP, f.Ping(1))),
		rx("vip, gre", verdict.ClusterDestination, f.Rx(f.Remote, f.InnerVIP, GRE())),
		rx("vip, first fragment", verdict.Service, IP{Src: f.Remote, Dst: f.InnerVIP, L4: UDP(53, vipPort), Fragment: first}.Frame(NodeMAC, PeerMAC)).inLocal(verdict.ServiceLocal),
		rx("vip, first fragment, no such port", verdict.ClusterDestination, IP{Src: f.Remote, Dst: f.InnerVIP, L4: UDP(53, 444), Fragment: first}.Frame(NodeMAC, PeerMAC)),
		rx("vip, later fragment of one dropped", verdict.ClusterDestination, part(fragDropped, f.InnerVIP)),
		rx("vip, early fragment", verdict.ClusterDestination, part(132, f.InnerVIP)),
		rx("vip, error about its answer", verdict.ICMPErrorOVN, f.Rx(f.Remote, f.InnerVIP, f.Expired(f.Sent(f.InnerVIP, TCP(vipPort, 53, ACK))))).inLocal(verdict.ICMPErrorHost),
		rx("vip, too big", verdict.ICMPVIP, f.Rx(f.Remote, f.InnerVIP, f.TooBig(f.Sent(f.Pod, TCP(80, 53, ACK))))).inLocal(verdict.ICMPErrorHost),
		rx("vip, other error", verdict.ICMPErrorHost, f.Rx(f.Remote, f.InnerVIP, f.Unreachable(nil))),
	}
}

// disguises cover packets with addresses that are harder to find or ambiguous.
func (f Family) disguises() []row {
	udp := UDP(53, 4000)
	to := func(mac verdict.MAC, p IP) []byte { return p.Frame(mac, PeerMAC) }
	later := &Fragment{ID: 140, Offset: 24}
	cut := func(n int, frame []byte) []byte { return frame[:len(frame)-n] }

	rows := []row{
		rx("from a pod, first fragment", verdict.SpoofedSource, to(NodeMAC, IP{Src: f.Pod, Dst: f.Node, L4: udp, Fragment: &Fragment{ID: 140, More: true}})),
		rx("from a pod, later fragment", verdict.SpoofedSource, to(NodeMAC, IP{Src: f.Pod, Dst: f.Node, L4: Part(ProtoUDP), Fragment: later})),
		rx("to a pod, first fragment", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: udp, Fragment: &Fragment{ID: 140, More: true}})),
		rx("to a pod, later fragment", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: Part(ProtoUDP), Fragment: later})),
		rx("to a pod, of a first one that was OVN's", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: Part(ProtoUDP), Fragment: &Fragment{ID: fragOVN, Offset: 24}})),
		rx("broadcast from a pod", verdict.SpoofedSource, to(Broadcast, IP{Src: f.Pod, Dst: f.Node, L4: udp})),
		rx("broadcast to a pod", verdict.ClusterDestination, to(Broadcast, IP{Src: f.Remote, Dst: f.Pod, L4: udp})),
		rx("from a pod, other MAC", verdict.OtherMAC, to(OtherMAC, IP{Src: f.Pod, Dst: f.Node, L4: udp})),
		rx("to a pod, other MAC", verdict.OtherMAC, to(OtherMAC, IP{Src: f.Remote, Dst: f.Pod, L4: udp})),
		rx("to a pod, ports cut short", verdict.ClusterDestination, cut(5, f.Rx(f.Remote, f.Pod, udp))).mangled(),
		rx("from a pod, ports cut short", verdict.SpoofedSource, cut(5, f.Rx(f.Pod, f.Node, udp))).mangled(),
		rx("error from a pod", verdict.SpoofedSource, f.Rx(f.Pod, f.Node, f.Unreachable(f.Sent(f.Node, range53)))),
		rx("error that quotes a pod", verdict.ICMPErrorHost, f.In(f.Unreachable(f.Sent(f.Pod, udp)))),
		rx("error to a pod", verdict.ClusterDestination, f.Rx(f.Remote, f.Pod, f.Unreachable(f.Sent(f.Pod, udp)))),
		rx("error to a pod, about what is OVN's", verdict.ClusterDestination, f.Rx(f.Remote, f.Pod, f.Unreachable(f.Sent(f.Node, range53)))),
		rx("error to a pod, about a service", verdict.ClusterDestination, f.Rx(f.Remote, f.Pod, f.TooBig(f.Sent(f.InnerVIP, TCP(vipPort, 53, ACK))))),
	}
	if !f.v6() {
		return append(rows,
			rx("to a pod, options", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: udp, Options: make([]byte, 8)})),
			rx("from a pod, options", verdict.SpoofedSource, to(NodeMAC, IP{Src: f.Pod, Dst: f.Node, L4: udp, Options: make([]byte, 8)})))
	}

	eight := make([]Ext, 8)
	for i := range eight {
		eight[i] = DestOpts(0)
	}

	mapped := netip.AddrFrom16(V4.Pod.As16())

	return append(rows,
		rx("to a pod, options", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: udp, Ext: []Ext{HopByHop(0), DestOpts(1)}})),
		rx("from a pod, options", verdict.SpoofedSource, to(NodeMAC, IP{Src: f.Pod, Dst: f.Node, L4: udp, Ext: []Ext{HopByHop(0), DestOpts(1)}})),
		rx("to a pod, eight headers", verdict.ClusterDestination, to(NodeMAC, IP{Src: f.Remote, Dst: f.Pod, L4: udp, Ext: eight})).mangled(),
		rx("from a pod, eight headers", verdict.SpoofedSource, to(NodeMAC, IP{Src: f.Pod, Dst: f.Node, L4: udp, Ext: eight})).mangled(),
		rx("from an IPv4-mapped pod", verdict.Default, f.Rx(mapped, f.Node, udp)),
		rx("to an IPv4-mapped pod", verdict.Malformed, f.Rx(f.Remote, mapped, udp)))
}

// range53 is a packet from OVN, for a quote.
var range53 = UDP(snatPort, 53)

// internalARPRows cover ARP packets that claim an address of those networks.
func internalARPRows(f Family) []row {
	in := func(dst verdict.MAC, op uint16, sender, target netip.Addr) []byte {
		return Ether(dst, PeerMAC, EtherARP, ARP(op, PeerMAC, sender, target))
	}

	return []row{
		rx("request from a pod", verdict.SpoofedSource, in(Broadcast, 1, f.Pod, f.Node)),
		rx("reply from a pod", verdict.SpoofedSource, in(NodeMAC, 2, f.Pod, f.Node)),
		rx("announcement of a pod", verdict.SpoofedSource, in(Broadcast, 1, f.Pod, f.Pod)),
		rx("announcement of a join address", verdict.SpoofedSource, in(Broadcast, 2, f.Join, f.Join)),
		rx("reply from a pod to another", verdict.OtherMAC, in(OtherMAC, 2, f.Pod, f.Foreign)),
		rx("request for a pod", verdict.ARPOther, in(Broadcast, 1, f.Remote, f.Pod)),
		rx("request from a neighbour", verdict.ARPRequest, in(Broadcast, 1, f.Neighbour, f.Node)),
		rx("reply from a next hop", verdict.ARPReply, in(NodeMAC, 2, f.NextHop, f.Node)),
		rx("reply from another node", verdict.ARPReply, in(NodeMAC, 2, f.InnerPeer, f.Node)),
		rx("announcement of a routable pod", verdict.ARPGratuitous, in(Broadcast, 1, f.Routable, f.Routable)),
	}
}

// internalNDRows are the IPv6 equivalent of internalARPRows.
func internalNDRows(f Family) []row {
	all := func(src netip.Addr, l4 L4) []byte {
		return ndFrame(Group6, PeerMAC, IP{Src: src, Dst: allNodes, L4: l4})
	}
	lla := netip.MustParseAddr("fe80::99")

	return []row{
		rx("solicitation from a pod", verdict.SpoofedSource, all(f.Pod, Solicit(f.Node))),
		rx("advertisement from a pod", verdict.SpoofedSource, all(f.Pod, Advert(f.Pod, false))),
		rx("advertisement of a pod", verdict.SpoofedSource, all(lla, Advert(f.Pod, false))),
		rx("answer about a pod", verdict.SpoofedSource, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.Node, L4: Advert(f.Pod, true)})),
		rx("advertisement of a neighbour", verdict.NDAdvert, all(lla, Advert(f.Neighbour, false))),
		rx("advertisement of another node", verdict.NDAdvert, all(lla, Advert(f.InnerPeer, false))),
		rx("solicitation for a pod", verdict.NDOther, all(lla, Solicit(f.Pod))),
		rx("solicitation to a pod", verdict.ClusterDestination, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.Pod, L4: Solicit(f.Pod)})),
		rx("solicitation for a vip, unicast", verdict.NDVIP, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.InnerVIP, L4: Solicit(f.InnerVIP)})),
		rx("solicitation for an unknown address, to a vip", verdict.ClusterDestination, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.InnerVIP, L4: Solicit(f.Foreign)})),
		rx("solicitation for an egress ip, unicast", verdict.NDSolicitOVN, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.InnerEgress, L4: Solicit(f.InnerEgress)})),
		rx("advertisement to a vip", verdict.ClusterDestination, ndFrame(NodeMAC, PeerMAC, IP{Src: lla, Dst: f.InnerVIP, L4: Advert(f.Foreign, true)})),
		rx("router advertisement from a pod", verdict.SpoofedSource, all(f.Pod, discovery(134, 0, make([]byte, 8)))),
	}
}

// openRows apply to a node without configured internal networks.
func openRows(f Family) []row {
	return []row{
		rx("from a pod", verdict.Default, f.Rx(f.Pod, f.Node, UDP(53, 4000))),
		rx("to a pod", verdict.NotOurs, f.Rx(f.Remote, f.Pod, UDP(53, 4000))),
		rx("vip, no such port", verdict.NotOurs, f.Rx(f.Remote, f.InnerVIP, TCP(4000, 444, SYN))),
	}
}
