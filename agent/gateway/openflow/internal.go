package openflow

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Internal networks are the cluster's own, and never appear on the wire. External networks are
// parts of them that do (see verdict.Config). Each of the three tables looks up one address of a
// packet, by the longest prefix. The priorities have this order: single addresses first, then
// longer networks before shorter ones, and external before internal networks of the same length.
const (
	prefixFlow  = 100 // to 357, for a network of 128 bits
	addressFlow = 500

	internalNet, externalNet = 0, 1
)

func networkPriority(p netip.Prefix, external int) int { return prefixFlow + 2*p.Bits() + external }

// internal drops packets from or to internal networks that arrive from the wire. Its tables are in
// front of tableL2. They exist even while the bridge is not connected.
//
//	tableClaim   target of a neighbour advertisement: internal ones are dropped
//	tableSender  source of IP, sender of ARP: internal ones are dropped
//	tableInward  destination of IP: internal ones are dropped, unless they are addresses of this node
//
// A packet that is not dropped passes on to the next table.
func (b *builder) internal() {
	advert := on("icmp6").with("icmp_type", icmp6Advert).with("icmp_code", 0)

	b.add(tableClaim, 0, nil, resubmit(tableSender))
	b.add(tableSender, 0, nil, resubmit(tableInward))
	b.add(tableInward, 0, nil, resubmit(tableL2))

	for _, p := range b.c.Internal {
		priority, net := networkPriority(p, internalNet), network(p)
		b.decide(verdict.SpoofedSource, tableSender, priority,
			ip(p.Addr()).with(addressField(p.Addr(), "src"), net), "drop")
		b.decide(verdict.ClusterDestination, tableInward, priority, ip(p.Addr()).toNet(p), "drop")

		if p.Addr().Is4() {
			b.decide(verdict.SpoofedSource, tableSender, priority, on("arp").with("arp_spa", net), "drop")
		} else {
			b.decide(verdict.SpoofedSource, tableClaim, priority, advert.with("nd_target", net), "drop")
		}
	}

	for _, p := range b.c.External {
		b.onWire(networkPriority(p, externalNet), p)
	}

	for a, kind := range b.kinds {
		if kind == verdict.AddrPeer && cluster.Contains(b.c.Internal, a) {
			b.onWire(addressFlow, netip.PrefixFrom(a, a.BitLen()))
		}

		if kind == verdict.AddrHost && cluster.Contains(b.c.Internal, a) {
			b.add(tableInward, addressFlow, ip(a).to(a), resubmit(tableL2))
		}
	}

	b.internalAddrs()
}

// onWire admits packets from or to p, which lies in an internal network.
func (b *builder) onWire(priority int, p netip.Prefix) {
	net := network(p)
	b.add(tableSender, priority, ip(p.Addr()).with(addressField(p.Addr(), "src"), net), resubmit(tableInward))
	b.add(tableInward, priority, ip(p.Addr()).toNet(p), resubmit(tableL2))

	if p.Addr().Is4() {
		b.add(tableSender, priority, on("arp").with("arp_spa", net), resubmit(tableInward))
	} else {
		advert := on("icmp6").with("icmp_type", icmp6Advert).with("icmp_code", 0)
		b.add(tableClaim, priority, advert.with("nd_target", net), resubmit(tableSender))
	}
}

// internalAddrs admits packets to internal addresses of a Service, of OVN, or of routable pods. It
// drops those for a Service's address that turn out to have no listener there.
func (b *builder) internalAddrs() {
	if !b.isConnected() {
		return
	}

	for a := range b.addrsByPort() {
		if b.kinds[a] != verdict.AddrHost && b.isInternal(a) {
			b.admit(a)
			b.dropUnserved(a)
		}
	}

	// In local gateway mode, frontends have no flows, as all unclaimed packets go to the host. At
	// internal addresses, dropUnserved drops unclaimed packets, so the frontends need flows there.
	for k := range b.in.Tables.Services {
		word := words[k.Proto]
		if !b.c.Local || word == "" || !b.isByPort(k.Addr) {
			continue
		}

		if b.kinds[k.Addr] != verdict.AddrHost && b.isInternal(k.Addr) {
			m := proto(word, k.Addr).to(k.Addr).with("tp_dst", k.Port)
			b.decide(verdict.ServiceLocal, tableOurs, 800, m, b.toHost...)
		}
	}

	for a, kind := range b.kinds {
		if kind == verdict.AddrOVN && b.isInternal(a) {
			b.admit(a)
		}
	}

	for _, p := range b.c.RoutablePods {
		if b.isInternal(p.Addr()) {
			b.add(tableInward, networkPriority(p, externalNet), b.toNode(ip(p.Addr())).toNet(p), resubmit(tableL2))
		}
	}
}

// isInternal is the model's isInternal, without the check for other nodes: the longest prefix
// decides.
func (b *builder) isInternal(a netip.Addr) bool {
	return longest(b.c.Internal, a) > longest(b.c.External, a)
}

// longest returns the length of the longest prefix that contains a, or -1.
func longest(prefixes []netip.Prefix, a netip.Addr) int {
	length := -1

	for _, p := range prefixes {
		if p.Contains(a) {
			length = max(length, p.Bits())
		}
	}

	return length
}

// toNode restricts m to packets to the node's MAC, with the gateway network's tag if it has one.
func (b *builder) toNode(m match) match {
	if b.c.VLAN != 0 {
		m = m.with("dl_vlan", b.c.VLAN)
	}

	return m.with("dl_dst", b.c.NodeMAC.String())
}

// admit admits packets to a, which is on this node. Of neighbour discovery it admits only
// solicitations for an address that the host or OVN answers for.
func (b *builder) admit(a netip.Addr) {
	b.add(tableInward, addressFlow, b.toNode(ip(a).to(a)), resubmit(tableL2))

	if a.Is4() {
		return
	}

	nd := b.toNode(on("icmp6").to(a))
	for _, kind := range icmp6Neighbour {
		b.decide(verdict.ClusterDestination, tableInward, addressFlow+10, nd.with("icmp_type", kind), "drop")
	}

	for target, kind := range b.kinds {
		if _, ok := neighbourReasons[kind]; ok && target.Is6() {
			solicit := nd.with("icmp_type", icmp6Solicit).with("icmp_code", 0).with("nd_target", target)
			b.add(tableInward, addressFlow+20, solicit, resubmit(tableL2))
		}
	}
}

// dropUnserved drops packets to the internal address a that no frontend claims: fragments that were
// not reassembled, packets that reach tableRest, and ICMP. A VIP must receive ICMP errors, so its
// other ICMP is dropped by a priority below that of icmpErrors, or in tableRest. At other
// addresses, ICMP is dropped above icmpErrors.
func (b *builder) dropUnserved(a netip.Addr) {
	drop := func(t table, priority int, m match) { b.decide(verdict.ClusterDestination, t, priority, m, "drop") }
	drop(tableOurs, 1010, ip(a).to(a).with("nw_frag", "yes"))
	drop(tableRest, 350, ip(a).to(a))

	isVIP := b.kinds[a] == verdict.AddrVIP
	switch icmp := proto("icmp", a).to(a); {
	case a.Is6() && isVIP:
		drop(tableICMP6, 5, icmp)
	case a.Is6():
		drop(tableICMP6, 30, icmp)
	case !isVIP:
		drop(tableOurs, 710, icmp)
	}
}
