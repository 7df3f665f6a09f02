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
// Priority 0 is not used: a standalone bridge has a flow of OVS there.
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

func (f *flows) direct(in StaticInput) {
	f.add(tablePort, 0, nil, local)

	fromHost := match{}.fromLocal()
	f.add(tablePort, 100, fromHost, "ALL")
	// A broader ARP match would cause a broadcast storm.
	encap := fromHost

	switch e := in.EncapIP; {
	case e.Is4():
		f.add(tablePort, 200, append(on("udp"), encap...).with("tp_dst", service.TunnelPort), "IN_PORT")
		f.add(tablePort, 200, append(on("arp"), encap...).with("arp_spa", e), "IN_PORT")
		f.add(tablePort, 200, append(on("arp"), encap...).with("arp_tpa", e).with("arp_op", arpReply), "IN_PORT")
	case e.Is6():
		f.add(tablePort, 200, append(on("udp6"), encap...).with("tp_dst", service.TunnelPort), "IN_PORT")
		nd := append(on("icmp6"), encap...)
		f.add(tablePort, 200, nd.from(e).with("icmp_type", icmp6Solicit).with("icmp_code", 0), "IN_PORT")
		f.add(tablePort, 200, nd.from(e).with("icmp_type", icmp6Advert).with("icmp_code", 0), "IN_PORT")
		f.add(tablePort, 200, nd.to(e).with("icmp_type", icmp6Advert).with("icmp_code", 0), "IN_PORT")
	}

	// Packets from the wire arrive through LOCAL as well. They must not match flows for OVN's packets.
	in.Hairpin.add(f, entry{priority: 60, after: []string{local}},
		entry{priority: 140, match: fromHost, after: []string{"ALL"}})
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

func (f *flows) bridged(in StaticInput) {
	uplink, patch := match{}.with("in_port", in.Ports.Uplink), match{}.with("in_port", in.Ports.Patch)
	host := match{}.fromLocal()
	tag := tagActions(in.VLAN)

	f.add(tablePort, 1, nil, local)

	var pop []string

	tagOVN := patch
	if in.VLAN != 0 {
		pop, tagOVN = []string{"pop_vlan"}, patch.with("dl_vlan", in.VLAN)
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
	in.Hairpin.add(f, entry{priority: 240, match: tagOVN, before: pop, after: []string{local}},
		entry{priority: 240, match: host, before: []string{unmark}, after: append(slices.Clip(tag), toOVN)})
}

const (
	ovnMark  = "0x6f76" // Mark
	hostMark = "set_field:0x686f->pkt_mark"
)

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
