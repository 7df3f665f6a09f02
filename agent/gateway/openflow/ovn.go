package openflow

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// A packet from OVN passes these tables, as far as its rules need them (see also wire.go):
//
//	table                    method         by
//	tableOVN, tableTooBig    ovn            destination, source MAC
//	tableGuard               guard          network of source or destination, ARP, neighbour discovery
//	tableSame, tableSameEnd  compareARP     ARP: sender and target equal or not
//	tableLocal, tableSize    checkLength    length, in local gateway mode
//	tableOut                 leaving        protocol and local port

const etherHeader = 14

// ovn decides packets from OVN, by destination.
//
//	930, 910  Geneve of pods: dropped, from podTunnels
//	920       Geneve to allowed networks: tableTooBig, which has all other rules as well
//	900       ICMP errors "too big": tableTooBig
//	850, 860  translated: hairpin
//	800       to the host, or from Services: to the host
//	700       from the node's MAC: tableGuard
//	0         from another MAC: dropped
//
// tableTooBig has the rules from 860 down, too. At 900 it drops packets to other nodes. As ICMP
// errors they would reduce the path MTU of the tunnels.
func (b *builder) ovn() {
	b.podTunnels()

	fragNeeded := on("icmp").with("icmp_type", icmp4Unreachable).with("icmp_code", icmp4FragNeeded)
	b.add(tableOVN, 900, fragNeeded, resubmit(tableTooBig))
	b.add(tableOVN, 900, on("icmp6").with("icmp_type", icmp6TooBig), resubmit(tableTooBig))

	for a, kind := range b.kinds {
		switch kind {
		case verdict.AddrPeer:
			b.decide(verdict.PMTUD, tableTooBig, 900, ip(a).to(a), "drop")
		case verdict.AddrHost:
			// The hairpin translates its packets before these flows.
			for _, t := range []table{tableOVN, tableTooBig} {
				b.decide(verdict.Hairpin, t, 800, ip(a).to(a), b.up...)
			}
		}
	}

	for _, t := range []table{tableOVN, tableTooBig} {
		for _, p := range b.c.ServiceCIDRs { // replies to packets that the host sent or forwarded
			b.decide(verdict.Hairpin, t, 800, ip(p.Addr()).fromNet(p), b.up...)
		}

		b.add(t, 700, match{}.with("dl_src", b.c.NodeMAC.String()), resubmit(tableGuard))
		b.decide(verdict.BadMAC, t, 0, nil, "drop")
	}
}

// podTunnels drops tunnel packets of pods, except to the allowed networks. Addresses of nodes are
// never excepted. The agent's own tunnels reach the bridge by the host's port, and not by OVN's.
func (b *builder) podTunnels() {
	geneve := func(a netip.Addr) match { return proto("udp", a).with("tp_dst", b.c.GenevePort) }
	for _, version := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		b.decide(verdict.PodTunnel, tableOVN, 910, geneve(version), "drop")
	}

	for _, p := range b.c.PodTunnels {
		b.add(tableOVN, 920, geneve(p.Addr()).toNet(p), resubmit(tableTooBig))
	}

	for a, kind := range b.kinds {
		if (kind == verdict.AddrHost || kind == verdict.AddrPeer) && cluster.Contains(b.c.PodTunnels, a) {
			b.decide(verdict.PodTunnel, tableOVN, 930, geneve(a).to(a), "drop")
		}
	}
}

// guard decides packets from OVN that have the node's MAC as their source and are not for the host.
// It drops those that must not be on the wire, such as packets that OVN should have translated.
//
//	950       IP whose header OVS cannot read, so without an address to check: dropped
//	900       BFD: to the wire
//	830       ARP and neighbour discovery from former addresses of the node: dropped, from former
//	820-810   while not in sync, ARP and advertisements: announcements
//	800       ARP and neighbour discovery: to the wire
//	600       to Services and masquerade addresses: dropped
//	520       from former addresses of the node: dropped, from former
//	510       from routable pods: next
//	500       from pods: dropped
//	0         all others: next
//
// next is tableOut, or tableLocal where the length is checked first.
func (b *builder) guard() {
	next := tableOut
	if b.checksLength() {
		next = tableLocal
	}

	if b.c.BFD {
		for _, word := range []string{"udp", "udp6"} {
			b.decide(verdict.BFDOut, tableGuard, 900, on(word).with("tp_dst", bfdPort), b.out...)
		}
	}

	if !b.c.InSync {
		b.announcements()
	}

	for _, word := range []string{"ip", "ipv6"} {
		b.decide(verdict.Unsnated, tableGuard, 950, on(word).with("nw_proto", 0), "drop")
	}

	b.decide(verdict.NeighbourOut, tableGuard, 800, on("arp"), b.out...)

	for _, kind := range icmp6Neighbour {
		b.decide(verdict.NeighbourOut, tableGuard, 800, on("icmp6").with("icmp_type", kind), b.out...)
	}

	for _, p := range slices.Concat(b.c.ServiceCIDRs, b.c.Masquerade) {
		b.decide(verdict.SvcLeak, tableGuard, 600, ip(p.Addr()).toNet(p), "drop")
	}

	for _, p := range b.c.PodCIDRs {
		b.decide(verdict.Unsnated, tableGuard, 500, ip(p.Addr()).fromNet(p), "drop")
	}

	b.former()

	for _, p := range b.c.RoutablePods {
		b.add(tableGuard, 510, ip(p.Addr()).fromNet(p), resubmit(next))
	}

	b.add(tableGuard, 0, nil, resubmit(next))
}

// former drops IP, ARP and neighbour discovery from former addresses of the node.
func (b *builder) former() {
	for a, kind := range b.kinds {
		if kind != verdict.AddrFormer {
			continue
		}

		b.decide(verdict.Unsnated, tableGuard, 520, ip(a).from(a), "drop")

		if a.Is4() {
			b.decide(verdict.Unsnated, tableGuard, 830, on("arp").with("arp_spa", a), "drop")
			continue
		}

		for _, kind := range icmp6Neighbour {
			b.decide(verdict.Unsnated, tableGuard, 830,
				on("icmp6").with("icmp_type", kind).with("ipv6_src", a), "drop")
		}
	}
}

// announcements drops announcements of addresses that are not the node's. While the southbound
// database is not in sync, OVN may announce addresses that have moved to another node.
//
//	820  ARP and advertisements for addresses of the host, and truncated advertisements: to the wire
//	815  solicited advertisements, which are replies: to the wire
//	810  other ARP requests and replies: compareARP finds announcements
//	     other advertisements: dropped
func (b *builder) announcements() {
	advert := on("icmp6").with("icmp_type", icmp6Advert).with("icmp_code", 0)

	for a, kind := range b.kinds {
		if kind != verdict.AddrHost && a != b.c.NodeMAC.LinkLocal() {
			continue
		}

		if a.Is4() {
			b.decide(verdict.NeighbourOut, tableGuard, 820, on("arp").with("arp_tpa", a), b.out...)
		} else {
			b.decide(verdict.NeighbourOut, tableGuard, 820, advert.with("nd_target", a), b.out...)
		}
	}

	const truncated = "::" // OVS reads a missing target as ::

	b.decide(verdict.NeighbourOut, tableGuard, 820, advert.with("nd_target", truncated), b.out...)

	for _, op := range []int{arpRequest, arpReply} {
		b.add(tableGuard, 810, on("arp").with("arp_op", op), compareFirst, resubmit(tableSame))
	}

	// The flags router, solicited and override (RFC 4861, 4.4), in all combinations with solicited.
	// OVS matches this field only as a whole.
	solicited := []uint32{0x40000000, 0x60000000, 0xc0000000, 0xe0000000}
	for _, flags := range solicited {
		b.decide(verdict.NeighbourOut, tableGuard, 815, advert.with("nd_reserved", flags), b.out...)
	}

	b.decide(verdict.GARPGuard, tableGuard, 810, advert, "drop")
}

// leaving sends permitted packets out. It first learns the replies that the local port alone would
// not identify.
//
//	600  in local gateway mode, protocols with ports from the node: to the host, which forwards them
//	500  from a port at which a host socket would receive the replies: dropped, from hostOwned
//	450  other packets of protocols with ports, and ICMP: to the wire
//	440  protocols without ports that the host uses: dropped, from hostOwned
//	400  other protocols without ports, from the node: learned, and to the wire, from learnProtos
//	0    all others: to the wire
func (b *builder) leaving() {
	b.learnProtos()
	b.hostOwned()
	b.decide(verdict.OutPlain, tableOut, 0, nil, b.out...)

	if b.c.Local {
		b.leavingLocal()
	}

	if b.checksLength() {
		b.checkLength()
	}
}

// leavingLocal has the host forward packets of protocols with ports, in local gateway mode.
func (b *builder) leavingLocal() {
	for _, a := range b.nodes() {
		for _, word := range words {
			b.decide(verdict.LocalOut, tableOut, 600, proto(word, a).from(a), b.up...)
		}

		if a.Is6() { // these show no protocol; most have one with ports
			b.decide(verdict.LocalOut, tableOut, 600, on("ipv6").from(a).with("nw_frag", "later"), b.up...)
		}
	}
}

// checksLength reports whether packets from OVN are compared with the uplink's MTU.
func (b *builder) checksLength() bool { return b.c.Local && b.c.MTU != 0 }

// checkLength passes packets that are larger than the uplink's MTU to the host, as oversized, and
// all others on to tableOut.
func (b *builder) checkLength() {
	larger := fmt.Sprintf("check_pkt_larger(%d)->NXM_NX_REG0[0]", b.c.MTU+etherHeader)
	for _, word := range []string{"ip", "ipv6"} {
		b.add(tableLocal, 10, on(word), larger, resubmit(tableSize))
	}

	b.add(tableLocal, 0, nil, resubmit(tableOut))

	// OVS counts a packet in the flows of both branches. So the flow for larger packets has no number,
	// and they count as if they were small.
	b.add(tableSize, 10, match{}.with("reg0", "0x1/0x1"), b.up...)
	b.add(tableSize, 0, nil, resubmit(tableOut))
}

// learnProtos learns the peers with which OVN uses protocols without ports. For each such packet,
// OVS adds or refreshes a flow in tableLearned that matches the reply.
func (b *builder) learnProtos() {
	for _, word := range []string{"tcp", "udp", "sctp", "icmp"} {
		b.decide(verdict.OutPlain, tableOut, 450, on(word), b.out...)
		b.decide(verdict.OutPlain, tableOut, 450, on(word+"6"), b.out...)
	}

	// A later IPv6 fragment shows no protocol.
	b.decide(verdict.OutPlain, tableOut, 450, on("ipv6").with("nw_frag", "later"), b.out...)

	for _, a := range b.nodes() {
		reply := learn(a) + ",NXM_OF_IP_PROTO[]," + reversedAddrs(a)
		b.decide(verdict.OutLearned, tableOut, 400, ip(a).from(a), b.learnAndSend(reply)...)
	}
}

// hostOwned drops packets of OVN that conflict with the host: the host would receive the replies.
func (b *builder) hostOwned() {
	if !b.c.Local {
		for _, s := range b.in.Sockets {
			b.dropFromSocket(s)
		}
	}

	for k := range b.in.Tables.HostProtos {
		for _, a := range b.nodes() {
			if a.Is4() != k.Remote.Is4() {
				continue
			}

			m := ip(a).from(a).with("nw_proto", k.Proto)
			if !k.Remote.IsUnspecified() {
				m = m.to(k.Remote)
			}

			b.decide(verdict.HostOwned, tableOut, 440, m, "drop")
		}
	}
}

// dropFromSocket drops packets from the port of a host socket inside the range. A TCP listener owns
// its whole port, as it does for replies (see sockets). Connected TCP sockets and SCTP are left
// out, as in the model.
func (b *builder) dropFromSocket(s verdict.Socket) {
	word, hasPorts := words[s.Proto]
	isConnected := s.Remote.IsValid()

	if !hasPorts || s.Proto == protoSCTP || !b.inSNATRange(s.Local.Port()) {
		return
	}

	if s.Proto == protoTCP && isConnected {
		return
	}

	for _, a := range b.listeningAddrs(s.Local.Addr()) {
		k := verdict.ServiceKey{Addr: a, Proto: s.Proto, Port: s.Local.Port()}
		if b.in.Tables.Services[k] != verdict.ServiceNone {
			continue // the reply would go to the Service
		}

		m := proto(word, a).from(a).with("tp_src", s.Local.Port())
		if isConnected {
			m = m.to(s.Remote.Addr()).with("tp_dst", s.Remote.Port())
		}

		b.decide(verdict.HostOwned, tableOut, 500, m, "drop")
	}
}

// learnAndSend returns the actions that learn the flow of a reply, and then send the packet. reply
// is from learn, with all match fields.
func (b *builder) learnAndSend(reply string) []string {
	actions := []string{reply + setLearned}
	if !b.isConnected() { // b.out is a drop, which OVS refuses beside other actions
		return actions
	}

	return append(actions, b.out...)
}

const (
	learnedFor   = int(verdict.ProtoTimeout / time.Second)
	learnedLimit = 16384                        // in total: a pod may send to any number of peers
	setLearned   = ",load:0x1->NXM_NX_REG1[0])" // ends the action of learn: the learned flow sets reg1
)

// learn returns the start of the action that learns the reply to a packet of a's version. The
// learned flow expires when no such packet was sent for a while. It is removed with the flow that
// learned it.
func learn(a netip.Addr) string {
	etherType := "0x800"
	if a.Is6() {
		etherType = "0x86dd"
	}

	return fmt.Sprintf("learn(table=%d,hard_timeout=%d,priority=100,delete_learned,cookie=%s,limit=%d,eth_type=%s",
		tableLearned, learnedFor, learnedCookie, learnedLimit, etherType)
}

// learnedCookie is ovs.LearnedCookie.
const learnedCookie = "0x6f766e656c726e"

// reversedAddrs are the match fields of learn for the reply's addresses: those of the packet,
// reversed.
func reversedAddrs(a netip.Addr) string {
	if a.Is4() {
		return "NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]"
	}

	return "NXM_NX_IPV6_SRC[]=NXM_NX_IPV6_DST[],NXM_NX_IPV6_DST[]=NXM_NX_IPV6_SRC[]"
}
