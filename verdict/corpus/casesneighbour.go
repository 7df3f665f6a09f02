package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// arpRows are IPv4 only.
func arpRows(f Family) []row {
	in := func(dst verdict.MAC, op uint16, sender, target netip.Addr) []byte {
		return Ether(dst, PeerMAC, EtherARP, ARP(op, PeerMAC, sender, target))
	}
	out := func(src verdict.MAC, op uint16, sender, target netip.Addr) []byte {
		return Ether(Broadcast, src, EtherARP, ARP(op, src, sender, target))
	}
	request := in(Broadcast, 1, f.Remote, f.Node)

	return []row{
		rx("request", verdict.ARPRequest, request),
		rx("request, unicast", verdict.ARPRequest, in(NodeMAC, 1, f.Remote, f.Node)),
		rx("request for the second address", verdict.ARPRequest, in(Broadcast, 1, f.Remote, f.Second)),
		rx("request for a vip", verdict.ARPVIP, in(Broadcast, 1, f.Remote, f.VIP)),
		rx("request for a vip, unicast", verdict.ARPVIP, in(NodeMAC, 1, f.Remote, f.VIP)),
		rx("request for an egress ip", verdict.ARPRequestOVN, in(Broadcast, 1, f.Remote, f.Egress)),
		rx("request for an egress ip, unicast", verdict.ARPRequestOVN, in(NodeMAC, 1, f.Remote, f.Egress)),
		rx("request for another node", verdict.ARPOther, in(Broadcast, 1, f.Remote, f.Peer)),
		rx("request for an unknown address", verdict.ARPOther, in(Broadcast, 1, f.Remote, f.Foreign)),
		rx("request for a former address", verdict.ARPOther, in(Broadcast, 1, f.Remote, f.Former)),
		rx("request for a routable pod", verdict.ARPOther, in(Broadcast, 1, f.Remote, f.Routable)),
		rx("probe for the node", verdict.ARPRequest, in(Broadcast, 1, netip.IPv4Unspecified(), f.Node)),
		rx("reply", verdict.ARPReply, in(NodeMAC, 2, f.Remote, f.Node)),
		rx("reply, broadcast", verdict.ARPReply, in(Broadcast, 2, f.Remote, f.Node)),
		rx("reply about a vip", verdict.ARPReply, in(NodeMAC, 2, f.VIP, f.Node)),
		rx("reply to another", verdict.OtherMAC, in(OtherMAC, 2, f.Remote, f.Foreign)),
		rx("announcement", verdict.ARPGratuitous, in(Broadcast, 1, f.Foreign, f.Foreign)),
		rx("announcement, reply", verdict.ARPReply, in(Broadcast, 2, f.Foreign, f.Foreign)),
		rx("announcement of another node", verdict.ARPGratuitous, in(Broadcast, 1, f.Peer, f.Peer)),
		rx("announcement of the node's address", verdict.ARPRequest, in(Broadcast, 1, f.Node, f.Node)),
		rx("announcement of a vip", verdict.ARPVIP, in(Broadcast, 1, f.VIP, f.VIP)),
		rx("announcement of an egress ip", verdict.ARPRequestOVN, in(Broadcast, 1, f.Egress, f.Egress)),
		rx("reverse request", verdict.ARPOther, in(Broadcast, 3, f.Remote, f.Node)),
		rx("cut short", verdict.Malformed, request[:len(request)-1]).mangled(),
		tx("request", verdict.NeighbourOut, out(NodeMAC, 1, f.Node, f.Foreign)),
		tx("reply", verdict.NeighbourOut, out(NodeMAC, 2, f.Egress, f.Remote)),
		tx("wrong MAC", verdict.BadMAC, out(OtherMAC, 1, f.Node, f.Foreign)),
		tx("announcement, in sync", verdict.NeighbourOut, out(NodeMAC, 1, f.Egress, f.Egress)),
		tx("request from a former address", verdict.Unsnated, out(NodeMAC, 1, f.Former, f.Remote)),
		tx("reply from a former address", verdict.Unsnated, out(NodeMAC, 2, f.Former, f.Remote)),
		tx("announcement of a former address", verdict.Unsnated, out(NodeMAC, 1, f.Former, f.Former)),
		tx("reverse request from a former address", verdict.Unsnated, out(NodeMAC, 3, f.Former, f.Remote)),
		tx("request for a former address", verdict.NeighbourOut, out(NodeMAC, 1, f.Node, f.Former)),
	}
}

// ndRows are IPv6 only.
func ndRows(f Family) []row {
	in := func(dst netip.Addr, l4 L4) []byte {
		return ndFrame(NodeMAC, PeerMAC, IP{Src: f.Remote, Dst: dst, L4: l4})
	}
	all := func(l4 L4) []byte { return ndFrame(Group6, PeerMAC, IP{Src: f.Remote, Dst: allNodes, L4: l4}) }
	out := func(l4 L4) []byte { return ndFrame(Group6, NodeMAC, IP{Src: f.Node, Dst: allNodes, L4: l4}) }
	solicit := in(f.Node, Solicit(f.Node))

	return []row{
		rx("solicitation", verdict.NDSolicit, all(Solicit(f.Node))),
		rx("solicitation, unicast", verdict.NDSolicit, in(f.Node, Solicit(f.Node))),
		rx("solicitation for the second address", verdict.NDSolicit, all(Solicit(f.Second))),
		rx("solicitation for the host's link-local", verdict.NDSolicit, all(Solicit(hostLLA))),
		rx("solicitation for the router's link-local", verdict.NDSolicitOVN, all(Solicit(routerLLA))),
		rx("solicitation for a vip", verdict.NDVIP, all(Solicit(f.VIP))),
		rx("solicitation for an egress ip", verdict.NDSolicitOVN, all(Solicit(f.Egress))),
		rx("solicitation for another node", verdict.NDOther, all(Solicit(f.Peer))),
		rx("solicitation for an unknown address", verdict.NDOther, all(Solicit(f.Foreign))),
		rx("solicitation for a former address", verdict.NDOther, all(Solicit(f.Former))),
		rx("duplicate address detection", verdict.NDSolicit, ndFrame(Group6, PeerMAC, IP{Src: netip.IPv6Unspecified(), Dst: allNodes, L4: Solicit(f.Node)})),
		rx("solicitation behind options", verdict.NDSolicit, IP{Src: f.Remote, Dst: f.Node, L4: Solicit(f.Node), TTL: 255, Ext: []Ext{DestOpts(0)}}.Frame(NodeMAC, PeerMAC)),
		rx("solicitation cut short", verdict.Malformed, solicit[:len(solicit)-1]).mangled(),
		rx("solicitation, fragmented", verdict.Default, IP{Src: f.Remote, Dst: f.Node, L4: Solicit(f.Node), Fragment: &Fragment{ID: 200, More: true}}.Frame(NodeMAC, PeerMAC)),
		rx("advertisement", verdict.NDAdvert, in(f.Node, Advert(f.Remote, true))),
		rx("advertisement to all", verdict.NDAdvert, all(Advert(f.Foreign, false))),
		rx("router advertisement", verdict.RouterAdvert, all(discovery(134, 0, make([]byte, 8)))),
		rx("router advertisement, unicast", verdict.RouterAdvert, in(f.Node, discovery(134, 0, make([]byte, 8)))),
		rx("router solicitation", verdict.NDOther, all(discovery(133, 0, nil))),
		rx("redirect", verdict.NDOther, in(f.Node, discovery(137, 0, make([]byte, 32)))),
		rx("to another", verdict.OtherMAC, ndFrame(OtherMAC, PeerMAC, IP{Src: f.Remote, Dst: f.Foreign, L4: Advert(f.Remote, true)})),
		rx("multicast listener", verdict.Multicast, all(discovery(131, 0, make([]byte, 16)))),
		tx("solicitation", verdict.NeighbourOut, out(Solicit(f.Remote))),
		tx("answer", verdict.NeighbourOut, ndFrame(PeerMAC, NodeMAC, IP{Src: f.Egress, Dst: f.Remote, L4: Advert(f.Egress, true)})),
		tx("announcement, in sync", verdict.NeighbourOut, out(Advert(f.Egress, false))),
		tx("solicitation from a former address", verdict.Unsnated, ndFrame(Group6, NodeMAC, IP{Src: f.Former, Dst: allNodes, L4: Solicit(f.Remote)})),
		tx("answer from a former address", verdict.Unsnated, ndFrame(PeerMAC, NodeMAC, IP{Src: f.Former, Dst: f.Remote, L4: Advert(f.Former, true)})),
		tx("announcement of a former address", verdict.Unsnated, ndFrame(Group6, NodeMAC, IP{Src: f.Former, Dst: allNodes, L4: Advert(f.Former, false)})),
		tx("redirect from a former address", verdict.Unsnated, ndFrame(PeerMAC, NodeMAC, IP{Src: f.Former, Dst: f.Remote, L4: discovery(137, 0, make([]byte, 32))})),
		tx("solicitation for a former address", verdict.NeighbourOut, out(Solicit(f.Former))),
		tx("wrong MAC", verdict.BadMAC, ndFrame(Group6, OtherMAC, IP{Src: f.Node, Dst: allNodes, L4: Solicit(f.Remote)})),
	}
}

// guardRows apply to a node with a southbound database that is not in sync yet.
func guardRows(f Family) []row {
	announce := func(a netip.Addr) []byte {
		return Ether(Broadcast, NodeMAC, EtherARP, ARP(1, NodeMAC, a, a))
	}
	if f.v6() {
		announce = func(a netip.Addr) []byte {
			return ndFrame(Group6, NodeMAC, IP{Src: a, Dst: allNodes, L4: Advert(a, false)})
		}
	}

	rows := []row{
		tx("egress ip", verdict.GARPGuard, announce(f.Egress)),
		tx("vip", verdict.GARPGuard, announce(f.VIP)),
		tx("another node", verdict.GARPGuard, announce(f.Peer)),
		tx("unknown address", verdict.GARPGuard, announce(f.Foreign)),
		tx("former address", verdict.Unsnated, announce(f.Former)),
		tx("node", verdict.NeighbourOut, announce(f.Node)),
		tx("second address", verdict.NeighbourOut, announce(f.Second)),
	}
	if f.v6() {
		short := announce(f.Egress)

		return append(rows,
			tx("router's link-local", verdict.NeighbourOut, announce(routerLLA)),
			tx("answer about an egress ip", verdict.NeighbourOut, ndFrame(PeerMAC, NodeMAC, IP{Src: f.Egress, Dst: f.Remote, L4: Advert(f.Egress, true)})),
			tx("solicitation", verdict.NeighbourOut, ndFrame(Group6, NodeMAC, IP{Src: f.Egress, Dst: allNodes, L4: Solicit(f.Remote)})),
			tx("cut short", verdict.NeighbourOut, short[:len(short)-1]).mangled(),
			tx("to the host", verdict.Hairpin, ndFrame(PeerMAC, NodeMAC, IP{Src: f.Egress, Dst: f.Second, L4: Advert(f.Egress, false)})))
	}

	return append(rows,
		tx("egress ip, reply", verdict.GARPGuard, Ether(Broadcast, NodeMAC, EtherARP, ARP(2, NodeMAC, f.Egress, f.Egress))),
		tx("answer about an egress ip", verdict.NeighbourOut, Ether(PeerMAC, NodeMAC, EtherARP, ARP(2, NodeMAC, f.Egress, f.Remote))),
		tx("request", verdict.NeighbourOut, Ether(Broadcast, NodeMAC, EtherARP, ARP(1, NodeMAC, f.Egress, f.Remote))),
		tx("reverse request", verdict.NeighbourOut, Ether(Broadcast, NodeMAC, EtherARP, ARP(3, NodeMAC, f.Egress, f.Egress))),
		tx("egress ip, wrong MAC", verdict.BadMAC, Ether(Broadcast, OtherMAC, EtherARP, ARP(1, OtherMAC, f.Egress, f.Egress))))
}
