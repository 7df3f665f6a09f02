package openflow

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	// Mark is the mark that the eBPF programs set on packets for OVN: "ov".
	Mark = 0x6f76
	// HostMark is the mark that flows set on host packets that no program has seen: "ho". It keeps the
	// uplink's program from treating them as OVN's.
	HostMark = 0x686f

	ovnMark  = "0x6f76" // Mark as a match
	hostMark = "set_field:0x686f->pkt_mark"
)

// StaticInput contains everything that the flows beside the eBPF programs depend on.
type StaticInput struct {
	Layout  verdict.Layout
	Ports   Ports      // except Direct
	VLAN    uint16     // only Bridged
	EncapIP netip.Addr // Direct on the userspace datapath: tunnel address; otherwise zero
	Hairpin Hairpin
}

// Static returns the flows that accompany the eBPF programs, sorted, in the syntax of
// ovs.SyncBundle.
//
//   - Direct: the flows name no port number, so they survive the re-creation of a patch port.
//   - Bridged: the programs mark OVN's packets with Mark. Packets without mark, which means all of
//     them if the programs are missing, pass between the uplink and the host.
//   - Dedicated: every packet passes between the uplink and OVN.
//
// Only Direct uses priority 0: in Bridged, OVS has a flow there, because the bridge is standalone.
func Static(in StaticInput) []string {
	var f flows

	switch in.Layout {
	case verdict.Direct:
		f.direct(in)
	case verdict.Bridged:
		f.bridged(in)
	case verdict.Dedicated:
		f.dedicated(in)
	}

	return f.sorted()
}

// direct connects the bridge's port LOCAL and OVN. The programs pass packets from the wire to OVN
// through LOCAL, and take OVN's packets from there.
//
//	200         tunnels of the userspace datapath: tunnels
//	140 to 160  the hairpin, from the host
//	100         through LOCAL: to OVN, which has the only other port
//	60, 70      the hairpin, from OVN
//	0           all others, which are from OVN: to LOCAL
//
// The flows for OVN's packets match no port. Their priority is below 100, so that packets from the
// wire do not match them.
func (f *flows) direct(in StaticInput) {
	const toOVN = "ALL" // all ports except the one of arrival

	f.add(tablePort, 0, nil, local)
	f.add(tablePort, 100, match{}.fromLocal(), toOVN)
	f.tunnels(in.EncapIP)

	in.Hairpin.add(f, entry{priority: 60, after: []string{local}},
		entry{priority: 140, match: match{}.fromLocal(), after: []string{toOVN}})
}

// tunnels outputs Geneve, ARP and neighbour discovery for the tunnel address to LOCAL, also if they
// came from there. The userspace datapath unpacks Geneve, and learns the MAC addresses of tunnel
// endpoints, only from packets that are output to LOCAL. A broader match of ARP would cause a
// broadcast storm. Without a tunnel address, tunnels adds nothing.
func (f *flows) tunnels(encap netip.Addr) {
	back := func(m match) { f.add(tablePort, 200, m, "IN_PORT") }

	switch {
	case encap.Is4():
		back(on("udp").fromLocal().with("tp_dst", service.TunnelPort))

		arp := on("arp").fromLocal()
		back(arp.with("arp_spa", encap))
		back(arp.with("arp_tpa", encap).with("arp_op", arpReply))
	case encap.Is6():
		back(on("udp6").fromLocal().with("tp_dst", service.TunnelPort))

		nd := on("icmp6").fromLocal()
		back(nd.from(encap).with("icmp_type", icmp6Solicit).with("icmp_code", 0))
		back(nd.from(encap).with("icmp_type", icmp6Advert).with("icmp_code", 0))
		back(nd.to(encap).with("icmp_type", icmp6Advert).with("icmp_code", 0))
	}
}

// Joining returns the flows of a bridge that the uplink is about to join, sorted. patch is OVN's
// patch port, or 0 without one. OVN's packets pass as in layout Direct: the programs still bring
// them to LOCAL. The number of the uplink's port is not known yet. On the kernel datapath this port
// brings what the programs pass to the host. On the userspace datapath it brings a copy of every
// packet, which is dropped: the host's stack would reset OVN's connections.
func Joining(patch uint32, userspace bool) []string {
	var f flows
	f.add(tablePort, 2, match{}.fromLocal(), "drop")

	if patch != 0 {
		f.add(tablePort, 100, match{}.fromLocal(), output(patch))
		f.add(tablePort, 100, match{}.with("in_port", patch), local)
	}

	if userspace {
		f.add(tablePort, 1, nil, "drop")
	} else {
		f.add(tablePort, 1, nil, local)
	}

	return f.sorted()
}

// bridged connects the uplink with OVN for marked packets, and with the host for all others.
//
//	240 to 260  the hairpin
//	200         marked, from the uplink or the host: to OVN
//	110         with a gateway VLAN:
//	            from the uplink with its tag: to the host, without the tag
//	            from the host with a tag of its own: to the uplink, unchanged
//	100         from OVN: to the uplink
//	            from the uplink: to the host
//	            from the host: to the uplink
//	1           from another port: to the host
//
// With a gateway VLAN, OVN's packets have its tag on the bridge, and the host's packets have none.
func (f *flows) bridged(in StaticInput) {
	uplink, patch := match{}.with("in_port", in.Ports.Uplink), match{}.with("in_port", in.Ports.Patch)
	host := match{}.fromLocal()
	tag := tagActions(in.VLAN)

	f.add(tablePort, 1, nil, local)

	fromOVN := entry{priority: 240, match: patch, after: []string{local}}
	if in.VLAN != 0 {
		fromOVN.match, fromOVN.before = patch.with("dl_vlan", in.VLAN), []string{"pop_vlan"}
	}

	if in.Ports.Uplink != 0 {
		f.add(tablePort, 100, uplink, local)
		f.add(tablePort, 100, host, append(append([]string{hostMark}, tag...), output(in.Ports.Uplink))...)

		if in.VLAN != 0 {
			f.add(tablePort, 110, uplink.with("dl_vlan", in.VLAN), "pop_vlan", local)
			f.add(tablePort, 110, host.with("vlan_tci", tagged), hostMark, output(in.Ports.Uplink))
		}
	}

	if in.Ports.Uplink == 0 || in.Ports.Patch == 0 {
		return
	}

	// Otherwise the mark would reach pods, and the route lookup of tunnels.
	const unmark = "set_field:0->pkt_mark"

	toOVN := output(in.Ports.Patch)
	f.add(tablePort, 200, uplink.with("pkt_mark", ovnMark), unmark, toOVN)
	f.add(tablePort, 200, host.with("pkt_mark", ovnMark), append(append([]string{unmark}, tag...), toOVN)...)
	f.add(tablePort, 100, patch, output(in.Ports.Uplink))
	in.Hairpin.add(f, fromOVN,
		entry{priority: 240, match: host, before: []string{unmark}, after: append(slices.Clip(tag), toOVN)})
}

// dedicated connects uplink and patch port. The hairpin connects OVN and the host, at priorities
// from 240.
func (f *flows) dedicated(in StaticInput) {
	f.add(tablePort, 1, nil, "drop")

	if in.Ports.Uplink == 0 || in.Ports.Patch == 0 {
		return
	}

	uplink, patch := match{}.with("in_port", in.Ports.Uplink), match{}.with("in_port", in.Ports.Patch)
	f.add(tablePort, 100, uplink, output(in.Ports.Patch))
	f.add(tablePort, 100, patch, output(in.Ports.Uplink))
	in.Hairpin.add(f, entry{priority: 240, match: patch, after: []string{local}},
		entry{priority: 240, match: match{}.fromLocal(), after: []string{output(in.Ports.Patch)}})
}
