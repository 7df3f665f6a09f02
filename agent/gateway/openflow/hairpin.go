package openflow

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The conntrack zones of the hairpin, by what they translate. Packets from OVN to the host need two
// translations, and a zone has one per connection.
const (
	zoneDestination = 64001 // from OVN: the destination; from the host to Services: the source
	zoneSource      = 64002 // from OVN: the source
)

// Hairpin configures the traffic between OVN and its own node. Both ends have the same address, so
// each end must see the other under a different one. The zero value makes no flows.
//
//	OVN → host: any → Host4          becomes  OVN4 → Node4
//	            any → Others         becomes  OVN4 → the same
//	host → OVN: any → ServiceCIDRs   becomes  Host4 → the same
//
// Replies are translated back. Packets from the host to Services that already have source Host4,
// through the host's route, need no translation.
type Hairpin struct {
	Node4, Node6 netip.Addr
	OVN4, OVN6   netip.Addr     // addresses under which the host sees OVN: 169.254.169.1, fd69::1
	Host4, Host6 netip.Addr     // addresses under which OVN sees the host: 169.254.169.2, fd69::2
	Masquerade   []netip.Prefix // networks of these four: unclaimed packets to them are dropped
	// HostAddrs are the host's other addresses, without link-local and loopback addresses.
	HostAddrs    []netip.Addr
	ServiceCIDRs []netip.Prefix
}

// family is the part of a hairpin for one IP version.
type family struct{ node, ovn, host netip.Addr }

// has reports whether a is of the family's IP version.
func (v family) has(a netip.Addr) bool { return a.Is4() == v.node.Is4() }

// families returns the IP versions for which all three addresses are set.
func (h Hairpin) families() []family {
	var out []family

	for _, f := range []family{{h.Node4, h.OVN4, h.Host4}, {h.Node6, h.OVN6, h.Host6}} {
		if f.node.IsValid() && f.ovn.IsValid() && f.host.IsValid() {
			out = append(out, f)
		}
	}

	return out
}

// entry is the place where the packets of one direction enter the hairpin, and the actions before
// and after the translation. Places and actions differ between the layouts.
type entry struct {
	table    table
	priority int      // the lowest one of the direction's flows
	number   uint8    // counter of the packets (see Count); 0: not counted
	match    match    // the direction, in addition to the addresses
	before   []string // remove a tag or mark
	after    []string // send to the other end
}

// toSender sets the destination MAC of a packet to its source MAC. That is the node's MAC, which
// the host and OVN's router share.
const toSender = "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]"

// flow adds a flow for the packets of e that match m. above is its priority above e.priority.
func (e entry) flow(f *flows, above int, m match, actions ...string) {
	m = append(slices.Clip(m), e.match...)
	f.count(e.number, e.table, e.priority+above, m, slices.Concat(e.before, actions)...)
}

// toOtherEnd returns the actions that send a translated packet to the other end.
func (e entry) toOtherEnd() []string { return append([]string{toSender}, e.after...) }

// add appends the flows of both directions.
func (h Hairpin) add(f *flows, fromOVN, fromHost entry) {
	for _, v := range h.families() {
		h.addToHost(f, v, fromOVN)
		h.addToOVN(f, v, fromHost)
	}

	if len(h.families()) > 0 {
		f.add(tableHairpin, 50, nil, fromHost.toOtherEnd()...)
	}
}

// addToHost appends the flows for packets from OVN, with priorities above that of the entry:
//
//	10  replies of Services to the host: to the address that sent the request
//	0   to an address of the host: from OVN's address v.ovn
//
// These packets are not recirculated: they have passed all of OVN's tables, and the userspace
// datapath drops a packet at its seventh recirculation.
func (h Hairpin) addToHost(f *flows, v family, fromOVN entry) {
	packets := ip(v.node)
	source := ct("commit", zoneSource, "nat(src=%s)", v.ovn)
	destination := ct("commit", zoneDestination, "nat(dst=%s)", v.node)
	back := ct("", zoneDestination, "nat")

	fromOVN.flow(f, 0, packets.to(v.host), slices.Concat([]string{destination, source}, fromOVN.toOtherEnd())...)

	for _, a := range h.HostAddrs {
		if v.has(a) && a != v.node && a != v.host {
			fromOVN.flow(f, 0, packets.to(a), slices.Concat([]string{source}, fromOVN.toOtherEnd())...)
		}
	}

	for _, p := range h.ServiceCIDRs {
		if v.has(p.Addr()) {
			m := packets.fromNet(p).to(v.host)
			fromOVN.flow(f, 10, m, slices.Concat([]string{back}, fromOVN.toOtherEnd())...)
		}
	}
}

// addToOVN appends the flows for packets from the host, with priorities above that of the entry:
//
//	20  to Services, from the host's masquerade address v.host: unchanged
//	10  other packets to Services: from v.host
//	    replies to OVN, which are to v.ovn: both translations undone
//	0   other packets to the masquerade networks: dropped
//
// OVN must see the translated header. So translated packets are recirculated to tableHairpin, which
// sends them to OVN.
func (h Hairpin) addToOVN(f *flows, v family, fromHost entry) {
	packets := ip(v.node)
	next := fmt.Sprintf("table=%d", tableHairpin)

	for _, p := range h.ServiceCIDRs {
		if v.has(p.Addr()) {
			fromHost.flow(f, 20, packets.from(v.host).toNet(p), fromHost.toOtherEnd()...)
			fromHost.flow(f, 10, packets.toNet(p), ct("commit,"+next, zoneDestination, "nat(src=%s)", v.host))
		}
	}

	fromHost.flow(f, 10, packets.to(v.ovn), ct("", zoneSource, "nat"), ct(next, zoneDestination, "nat"))

	for _, p := range h.Masquerade {
		if v.has(p.Addr()) {
			f.count(fromHost.number, fromHost.table, fromHost.priority,
				append(packets.toNet(p), fromHost.match...), "drop")
		}
	}
}

// ct formats a conntrack action as OVS does. first are its leading arguments, or "". nat is a
// format for args.
func ct(first string, zone int, nat string, args ...any) string {
	if first != "" {
		first += ","
	}

	return fmt.Sprintf("ct(%szone=%d,%s)", first, zone, fmt.Sprintf(nat, args...))
}

// hairpin adds the flows to the tables of OVN's and the host's packets.
func (b *builder) hairpin() {
	if !b.isConnected() {
		return
	}

	// Both tables for packets from OVN have the same flows. Those of fromHost are added twice, and
	// sorted removes the repetition.
	for _, t := range []table{tableOVN, tableTooBig} {
		fromOVN := entry{table: t, priority: 850, number: number(verdict.Hairpin), after: b.toHost}
		fromHost := entry{
			table:    tableService,
			priority: 140,
			number:   number(verdict.HostOVN),
			after:    append(b.tag(), b.toOVN...),
		}
		b.in.Hairpin.add(&b.flows, fromOVN, fromHost)
	}
}
