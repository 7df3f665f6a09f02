package openflow

import (
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	group = "01:00:00:00:00:00/01:00:00:00:00:00"
	local = "LOCAL"
	// Only fragments reach this zone, so the host's other traffic has no conntrack cost.
	reassembly = 64003
	pureSYN    = "-fin+syn-rst-ack"
	tagged     = "0x1000/0x1000"
	untagged   = "0x0000/0x1000"
)

// ports decides by the ingress port of a frame, its tag, and its MAC.
func (b *builder) ports() {
	// Priority 0 is OVS' own flow if the bridge is standalone.
	b.decide(verdict.PassUnconfigured, tablePort, 1, nil, local)
	b.add(tablePort, 100, match{}.fromLocal(), resubmit(tableHost))

	if b.in.Ports.Patch != 0 {
		b.fromOVN(match{}.with("in_port", b.in.Ports.Patch))
	}

	if b.in.Ports.Uplink == 0 {
		return
	}

	uplink := match{}.with("in_port", b.in.Ports.Uplink)

	otherMAC := verdict.PassUnconfigured
	if b.isConnected() {
		otherMAC = verdict.OtherMAC
	}

	withoutTag := verdict.VLAN
	if b.c.VLAN == 0 {
		withoutTag = otherMAC
	}

	b.decide(withoutTag, tablePort, 50, uplink, local)
	b.priorityTags(uplink)

	ours := uplink
	if n := b.c.VLAN; n != 0 {
		ours = uplink.with("dl_vlan", n)
		b.decide(otherMAC, tablePort, 60, ours, b.toHost...)

		for _, second := range secondTag {
			b.decide(verdict.VLAN, tablePort, 200, ours.with("dl_type", second), local)
		}

		b.foreign(uplink)
	} else {
		b.decide(verdict.VLAN, tablePort, 200, uplink.with("vlan_tci", tagged), local)
	}

	b.add(tablePort, 100, ours.with("dl_dst", b.c.NodeMAC.String()), resubmit(tableClaim))
	b.add(tablePort, 100, ours.with("dl_dst", group), resubmit(tableClaim))

	if !b.isConnected() {
		b.decide(verdict.PassUnconfigured, tableL2, 0, nil, b.toHost...)
	}
}

// secondTag are the EtherTypes of a second tag behind a first one.
var secondTag = [...]string{"0x8100", "0x88a8"}

// fromOVN admits only the gateway network's tag.
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

// l2 decides neighbour protocols and multicast.
func (b *builder) l2() {
	arp := on("arp")
	b.decide(verdict.ARPReply, tableL2, 300, arp.with("arp_op", arpReply), b.both...)
	b.add(tableL2, 280, arp.with("arp_op", arpRequest), "load:0->NXM_NX_REG0[]", resubmit(tableSame))
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
		b.decide(verdict.Multicast, tableL2, 200, on(word).with("dl_dst", group), b.toHost...)
	}

	b.decide(verdict.NotIP, tableL2, 190, match{}.with("dl_dst", group), b.toHost...)
	b.add(tableL2, 0, nil, resubmit(tableAddress))
}

// neighbourReasons maps an address kind to the reason for deciding its ARP or neighbour
// solicitation.
var neighbourReasons = map[verdict.AddrKind]struct{ arp, solicit verdict.Reason }{
	verdict.AddrHost: {verdict.ARPRequest, verdict.NDSolicit},
	verdict.AddrVIP:  {verdict.ARPVIP, verdict.NDVIP},
	verdict.AddrOVN:  {verdict.ARPRequestOVN, verdict.NDSolicitOVN},
}

// compareARP compares sender and target of an ARP packet. OpenFlow has no such match, so the flows
// compare four bits at a time. They start with the last bits, which differ most often, so that the
// datapath mask stays short. reg0 counts the steps.
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
	b.decide(verdict.NeighbourOut, tableSame, 0, patch, b.out...) // they differ
	b.decide(verdict.GARPGuard, tableSameEnd, 0, patch, "drop")

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

// addresses decides by the destination of IP packets to the node's MAC.
func (b *builder) addresses() {
	for a := range b.addrsByPort() {
		reassemble := fmt.Sprintf("ct(table=%d,zone=%d)", tableOurs, reassembly)
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
		if kind == verdict.AddrHost || kind == verdict.AddrVIP && !contains(b.c.RoutablePods, a) {
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
	return b.kinds[a] != verdict.AddrOVN && !contains(b.c.RoutablePods, a)
}

// icmpErrors sends ICMP errors to both sides, because flows cannot match the quoted packet. IPv6
// errors are all types below 128. A type cannot be masked, so it is copied to a register first.
func (b *builder) icmpErrors(t table, priority int) {
	for _, kind := range icmp4Errors {
		b.count(errorToBoth, t, priority, on("icmp").with("icmp_type", kind), b.both...)
	}

	b.add(t, priority, on("icmp6").with("nw_frag", "no"),
		"move:NXM_NX_ICMPV6_TYPE[]->NXM_NX_REG0[0..7]", resubmit(tableICMP6))
}

// echoReplies sends echo replies to the node to both sides, because flows cannot match identifiers.
func (b *builder) echoReplies() {
	b.count(errorToBoth, tableICMP6, 20, match{}.with("reg0", "0/0x80"), b.both...)

	for _, a := range b.hosts() {
		if to := proto("icmp", a).to(a); a.Is6() {
			b.decide(verdict.ICMPEcho, tableICMP6, 5, to.with("icmp_type", icmp6Echo), b.toHost...)
			b.decide(verdict.ICMPEchoReply, tableICMP6, 5, to.with("icmp_type", icmp6Reply), b.toHost...)
			b.decide(verdict.Default, tableICMP6, 3, to, b.toHost...)
		}
	}

	b.decide(verdict.NotOurs, tableICMP6, 0, nil, b.toHost...)

	for _, a := range b.nodes() {
		reply := proto("icmp", a).to(a)
		if a.Is4() {
			b.count(replyToBoth, tableOurs, 500, reply.with("icmp_type", icmp4Reply), b.both...)
		} else {
			b.count(replyToBoth, tableICMP6, 10, reply.with("icmp_type", icmp6Reply), b.both...)
		}
	}
}
