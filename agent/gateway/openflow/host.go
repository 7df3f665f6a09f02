package openflow

import (
	"fmt"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// host decides packets that the host sends through the bridge:
//
//	tableHost     300        tagged by the host, so of another network: to the wire
//	              200        to Services and masquerade addresses: tableService
//	              0          all others: to the wire
//	tableService  900        Geneve: to the wire
//	              140 to 160 translated: hairpin
//	              0          all others: to OVN
//
// Geneve is matched in tableService, so that the datapath flows of all other packets ignore ports.
func (b *builder) host() {
	out, toOVN := []string{"drop"}, []string{"drop"}
	if b.in.Ports.Uplink != 0 {
		out = append(b.tag(), output(b.in.Ports.Uplink))
		b.decide(verdict.HostOut, tableHost, 300, match{}.with("vlan_tci", tagged), output(b.in.Ports.Uplink))
	}

	if b.in.Ports.Patch != 0 {
		toOVN = append(b.tag(), output(b.in.Ports.Patch))
	}

	for _, p := range slices.Concat(b.c.ServiceCIDRs, b.c.Masquerade) {
		b.add(tableHost, 200, ip(p.Addr()).toNet(p), resubmit(tableService))
	}

	for _, word := range []string{"udp", "udp6"} {
		b.decide(verdict.HostOut, tableService, 900, on(word).with("tp_dst", b.c.GenevePort), out...)
	}

	b.decide(verdict.HostOVN, tableService, 0, nil, toOVN...)
	b.decide(verdict.HostOut, tableHost, 0, nil, out...)
}

// tag returns the actions that put a host packet into the gateway's network.
func (b *builder) tag() []string { return tagActions(b.c.VLAN) }

func tagActions(vlan uint16) []string {
	if vlan == 0 {
		return nil
	}

	const present = 0x1000 // OFPVID_PRESENT of OpenFlow 1.3: the packet has a tag

	return []string{"push_vlan:0x8100", fmt.Sprintf("set_field:%d->vlan_vid", present|vlan)}
}
