package openflow

import (
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// A packet from the wire passes these tables. A flow either decides a packet and counts it
// (b.decide), or passes it to another table (b.add). flow.go has the numbers of the tables.
//
//	table                    method        by
//	tablePort                ports         ingress port, VLAN tag, destination MAC
//	tableClaim, tableSender, internal      networks of the cluster: forged sources and unserved
//	tableInward                            destinations
//	tableL2                  l2            ARP, neighbour discovery, multicast
//	tableSame, tableSameEnd  compareARP    ARP: sender and target equal or not
//	tableAddress             addresses     destination address
//	tableICMP6               icmp6         ICMPv6 type
//	tableOurs and others     ours          port, for addresses of the host and of Services (ours.go)
//
// Of the flows of a table that match a packet, the one with the highest priority applies. The
// numbers only order the flows of a table. Each method lists its priorities, highest first.

const (
	// multicastMAC matches the bit that all multicast MACs have, and the broadcast MAC.
	multicastMAC = "01:00:00:00:00:00/01:00:00:00:00:00"
	local        = "LOCAL" // the bridge's own port, which is the host's
	// Only fragments reach this zone, so the host's other traffic has no conntrack cost.
	reassemblyZone = 64003
	pureSYN        = "-fin+syn-rst-ack" // tcp_flags of a packet that opens a connection
	// Values of vlan_tci for packets with any tag, and without a tag.
	tagged   = "0x1000/0x1000"
	untagged = "0x0000/0x1000"
)

// ports decides by the ingress port. Packets of the host and of OVN continue in their own tables.
//
//	100 to 130  from OVN: fromOVN
//	100         from the host
//	50 to 220   from the wire: fromUplink
//	1           from another port: to the host
//
// A standalone bridge has OVS' own flow at priority 0.
func (b *builder) ports() {
	b.decide(verdict.PassUnconfigured, tablePort, 1, nil, local)
	b.add(tablePort, 100, match{}.fromLocal(), resubmit(tableHost))

	if b.in.Ports.Patch != 0 {
		b.fromOVN(match{}.with("in_port", b.in.Ports.Patch))
	}

	if b.in.Ports.Uplink != 0 {
		b.fromUplink(match{}.with("in_port", b.in.Ports.Uplink))
	}
}

// fromUplink decides packets from the wire by VLAN tag and destination MAC.
//
//	220, 210  with a priority tag: priorityTags
//	200       of another network, by the tag: to the host
//	100       to the node's MAC or a multicast MAC: tableClaim, the first table of internal
//	60, 50    all others: to the host
//
// In the gateway network, the host does not see the tag, so b.toHost removes it.
func (b *builder) fromUplink(uplink match) {
	otherMAC := verdict.OtherMAC
	if !b.isConnected() {
		otherMAC = verdict.PassUnconfigured
		// Nothing else fills tableL2 while the bridge is not connected, and internal leads there.
		b.decide(verdict.PassUnconfigured, tableL2, 0, nil, b.toHost...)
	}

	b.priorityTags(uplink)

	if b.c.VLAN == 0 {
		b.decide(verdict.VLAN, tablePort, 200, uplink.with("vlan_tci", tagged), local)
		b.toThisNode(uplink)
		b.decide(otherMAC, tablePort, 50, uplink, local)

		return
	}

	ours := uplink.with("dl_vlan", b.c.VLAN)
	for _, second := range secondTag {
		b.decide(verdict.VLAN, tablePort, 200, ours.with("dl_type", second), local)
	}

	b.toThisNode(ours)
	b.decide(otherMAC, tablePort, 60, ours, b.toHost...)

	// Untagged packets are of another network, but the host's stack accepts them. So internal
	// checks their addresses before the host receives them.
	none := uplink.with("vlan_tci", untagged)
	b.toThisNode(none)
	b.decide(verdict.VLAN, tableL2, 1000, none, local)
	b.decide(verdict.VLAN, tablePort, 50, uplink, local)
}

// toThisNode passes the packets of m to the node's MAC or a multicast MAC on to tableClaim.
func (b *builder) toThisNode(m match) {
	b.add(tablePort, 100, m.with("dl_dst", b.c.NodeMAC.String()), resubmit(tableClaim))
	b.add(tablePort, 100, m.with("dl_dst", multicastMAC), resubmit(tableClaim))
}

// secondTag are the EtherTypes of a second tag behind a first one.
var secondTag = [...]string{"0x8100", "0x88a8"}

// priorityTags removes tags of VLAN 0, which mean "untagged", and looks the packet up again. OVS
// reads only one tag, so the flows cannot see what is behind a second one: it is dropped.
func (b *builder) priorityTags(uplink match) {
	none := uplink.with("dl_vlan", 0)
	b.add(tablePort, 210, none, "pop_vlan", resubmit(tablePort))

	for _, second := range secondTag {
		b.decide(verdict.NestedTag, tablePort, 220, none.with("dl_type", second), "drop")
	}
}

// fromOVN passes packets without a tag or with the gateway network's tag on to tableOVN. Packets
// with another tag, or with two, are decided by their source MAC alone, in tableTagged. From the
// node's MAC they leave by the uplink as they are. From any other MAC they are dropped.
//
//	130  with the gateway network's tag and a second one: tableTagged
//	120  with the gateway network's tag: tableOVN
//	110  with any tag: tableTagged
//	100  without a tag: tableOVN
func (b *builder) fromOVN(patch match) {
	b.add(tablePort, 100, patch, resubmit(tableOVN))
	b.add(tablePort, 110, patch.with("vlan_tci", tagged), resubmit(tableTagged))

	if n := b.c.VLAN; n != 0 {
		b.add(tablePort, 120, patch.with("dl_vlan", n), resubmit(tableOVN))

		for _, second := range secondTag {
			b.add(tablePort, 130, patch.with("dl_vlan", n).with("dl_type", second), resubmit(tableTagged))
		}
	}

	b.decide(verdict.OutPlain, tableTagged, 10, match{}.with("dl_src", b.c.NodeMAC.String()), b.out...)
	b.decide(verdict.BadMAC, tableTagged, 0, nil, "drop")
}

// l2 decides ARP, neighbour discovery and multicast.
//
//	1000  untagged, if the gateway network has a tag: from fromUplink
//	310   IPv6 to an IPv4-mapped address: to the host, as malformed
//	300   ARP replies, neighbour and router advertisements: to both sides
//	290   ARP requests and neighbour solicitations for a known address: to its owner
//	280   other ARP requests: compareARP finds announcements
//	      other neighbour discovery: to the host
//	270   other ARP: to the host
//	200   other multicast IP: to the host
//	190   other multicast: to the host
//	0     all others: tableAddress
func (b *builder) l2() {
	arp := on("arp")
	b.decide(verdict.ARPReply, tableL2, 300, arp.with("arp_op", arpReply), b.both...)
	b.add(tableL2, 280, arp.with("arp_op", arpRequest), compareFirst, resubmit(tableSame))
	b.decide(verdict.ARPOther, tableL2, 270, arp, b.toHost...)

	icmp6 := on("icmp6")
	b.decide(verdict.Malformed, tableL2, 310, on("ipv6").with("ipv6_dst", "::ffff:0.0.0.0/96"), b.toHost...)
	b.decide(verdict.RouterAdvert, tableL2, 300, icmp6.with("icmp_type", icmp6RouterAdvert), b.both...)
	b.decide(verdict.NDAdvert, tableL2, 300, icmp6.with("icmp_type", icmp6Advert), b.both...)

	for _, kind := range []int{icmp6RouterSolicit, icmp6Solicit, icmp6Redirect} {
		b.decide(verdict.NDOther, tableL2, 280, icmp6.with("icmp_type", kind), b.toHost...)
	}

	for a, kind := range b.kinds {
		reasons, ok := neighbourReasons[kind]
		if !ok {
			continue
		}

		actions := b.toHost
		if kind == verdict.AddrOVN {
			actions = b.toOVN
		}

		if a.Is4() {
			b.decide(reasons.arp, tableL2, 290, arp.with("arp_tpa", a).with("arp_op", arpRequest), actions...)
		} else {
			solicit := icmp6.with("icmp_type", icmp6Solicit).with("icmp_code", 0).with("nd_target", a)
			b.decide(reasons.solicit, tableL2, 290, solicit, actions...)
		}
	}

	for _, word := range []string{"ip", "ipv6"} {
		b.decide(verdict.Multicast, tableL2, 200, on(word).with("dl_dst", multicastMAC), b.toHost...)
	}

	b.decide(verdict.NotIP, tableL2, 190, match{}.with("dl_dst", multicastMAC), b.toHost...)
	b.add(tableL2, 0, nil, resubmit(tableAddress))
}

// neighbourReasons maps an address kind to the reason for deciding its ARP or neighbour
// solicitation.
var neighbourReasons = map[verdict.AddrKind]struct{ arp, solicit verdict.Reason }{
	verdict.AddrHost: {verdict.ARPRequest, verdict.NDSolicit},
	verdict.AddrVIP:  {verdict.ARPVIP, verdict.NDVIP},
	verdict.AddrOVN:  {verdict.ARPRequestOVN, verdict.NDSolicitOVN},
}

// compareFirst sets the number of the next step of compareARP to 0.
const compareFirst = "load:0->NXM_NX_REG0[]"

// compareARP recognizes announcements among ARP packets: their sender and target address are equal.
// An announcement from the wire concerns both sides. While the southbound database is not in sync,
// those from OVN are dropped (see announcements).
//
// OpenFlow cannot compare two fields. So each step compares four bits of both, by a flow for each
// of the 16 values. reg0 has the number of the step. At the first difference the packet matches
// priority 0 of tableSame. If all steps find equal bits, it reaches tableSameEnd.
//
// The steps start with the last bits of the addresses, which differ most often. So most packets
// need only a few steps, and their datapath flows match only a few bits.
func (b *builder) compareARP() {
	const steps = 8
	for step := range steps {
		for bits := range uint32(16) {
			var value, mask [4]byte

			at, shift := 3-step/2, 4*(step%2)
			value[at], mask[at] = byte(bits<<shift), byte(0xf<<shift)

			same := fmt.Sprintf("%s/%s", netip.AddrFrom4(value), netip.AddrFrom4(mask))
			if step == steps-1 { // OVS prints a contiguous mask as a prefix length
				same = fmt.Sprintf("%s/4", netip.AddrFrom4(value))
			}

			next, t := fmt.Sprintf("load:%#x->NXM_NX_REG0[]", step+1), tableSame
			if step == steps-1 {
				t = tableSameEnd
			}

			m := on("arp").with("reg0", reg(step)).with("arp_spa", same).with("arp_tpa", same)
			b.add(tableSame, 10, m, next, resubmit(t))
		}
	}

	uplink, patch := match{}.with("in_port", b.in.Ports.Uplink), match{}.with("in_port", b.in.Ports.Patch)
	b.decide(verdict.NeighbourOut, tableSame, 0, patch, b.out...) // a request or reply for another address
	b.decide(verdict.GARPGuard, tableSameEnd, 0, patch, "drop")   // an announcement

	if b.isConnected() {
		b.decide(verdict.ARPOther, tableSame, 0, uplink, b.toHost...)
		b.decide(verdict.ARPGratuitous, tableSameEnd, 0, uplink, b.both...)
	}
}

// reg formats a register value: OVS prints 0 without 0x.
func reg(n int) string {
	if n == 0 {
		return "0"
	}

	return fmt.Sprintf("%#x", n)
}

// addresses decides IP packets to the node's MAC by their destination address.
//
//	310  fragments for tableOurs: conntrack reassembles them first
//	300  addresses of the host, of VIPs and of Services: tableOurs
//	     addresses of OVN alone: to OVN
//	200  routable pods: to OVN
//	100  ICMP errors: icmpErrors
//	20   IP whose header OVS cannot read: to the host, as malformed
//	10   other IP: to the host
//	0    neither IP nor ARP: to the host
func (b *builder) addresses() {
	for a := range b.addrsByPort() {
		reassemble := fmt.Sprintf("ct(table=%d,zone=%d)", tableOurs, reassemblyZone)
		b.add(tableAddress, 310, ip(a).to(a).with("nw_frag", "yes"), reassemble)
		b.add(tableAddress, 300, ip(a).to(a), resubmit(tableOurs))
	}

	for a, kind := range b.kinds {
		if kind == verdict.AddrOVN {
			b.decide(verdict.OVNAddress, tableAddress, 300, ip(a).to(a), b.toOVN...)
		}
	}

	for _, p := range b.c.RoutablePods {
		b.decide(verdict.PodAddress, tableAddress, 200, ip(p.Addr()).toNet(p), b.toOVN...)
	}

	b.icmpErrors(tableAddress, 100)

	for _, word := range []string{"ip", "ipv6"} {
		b.decide(verdict.Malformed, tableAddress, 20, on(word).with("nw_proto", 0), b.toHost...)
		b.decide(verdict.NotOurs, tableAddress, 10, on(word), b.toHost...)
	}

	b.decide(verdict.NotIP, tableAddress, 0, nil, b.toHost...)
}

// addrsByPort returns the addresses whose packets are decided by port: the host's, the VIPs, and
// other addresses of Services.
func (b *builder) addrsByPort() map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}

	for a, kind := range b.kinds {
		if kind == verdict.AddrHost || kind == verdict.AddrVIP && !cluster.Contains(b.c.RoutablePods, a) {
			addrs[a] = true
		}
	}

	for k := range b.in.Tables.Services {
		if b.isByPort(k.Addr) {
			addrs[k.Addr] = true
		}
	}

	return addrs
}

// isByPort reports whether the packets of a Service on the address are decided by port.
func (b *builder) isByPort(a netip.Addr) bool {
	return b.kinds[a] != verdict.AddrOVN && !cluster.Contains(b.c.RoutablePods, a)
}

// icmpErrors sends ICMP errors to both sides, because flows cannot match the quoted packet. A flow
// cannot match a range of ICMPv6 types either. So every ICMPv6 packet that is not a fragment is
// passed on to tableICMP6, with its type in reg0.
func (b *builder) icmpErrors(t table, priority int) {
	for _, kind := range icmp4Errors {
		b.count(errorToBoth, t, priority, on("icmp").with("icmp_type", kind), b.both...)
	}

	b.add(t, priority, on("icmp6").with("nw_frag", "no"),
		"move:NXM_NX_ICMPV6_TYPE[]->NXM_NX_REG0[0..7]", resubmit(tableICMP6))
}

// icmp6 decides ICMPv6 packets by the type in reg0, and by address.
//
//	30, 5  to an internal address without a listener: dropped, from dropUnserved
//	20     errors, which are the types below 128: to both sides
//	10     echo replies to the node: echoReplies
//	5      echo requests, and other echo replies, to the host: to the host
//	3      other types to the host: to the host
//	0      to any other address: to the host
func (b *builder) icmp6() {
	b.count(errorToBoth, tableICMP6, 20, match{}.with("reg0", "0/0x80"), b.both...)

	for _, a := range b.hosts() {
		if a.Is4() {
			continue
		}

		to := proto("icmp", a).to(a)
		b.decide(verdict.ICMPEcho, tableICMP6, 5, to.with("icmp_type", icmp6Echo), b.toHost...)
		b.decide(verdict.ICMPEchoReply, tableICMP6, 5, to.with("icmp_type", icmp6Reply), b.toHost...)
		b.decide(verdict.Default, tableICMP6, 3, to, b.toHost...)
	}

	b.decide(verdict.NotOurs, tableICMP6, 0, nil, b.toHost...)
}

// echoReplies sends echo replies to the node's own addresses to both sides, because flows cannot
// match the identifier that shows whether the host or OVN sent the request.
func (b *builder) echoReplies() {
	for _, a := range b.nodes() {
		reply := proto("icmp", a).to(a)
		if a.Is4() {
			b.count(replyToBoth, tableOurs, 500, reply.with("icmp_type", icmp4Reply), b.both...)
		} else {
			b.count(replyToBoth, tableICMP6, 10, reply.with("icmp_type", icmp6Reply), b.both...)
		}
	}
}
