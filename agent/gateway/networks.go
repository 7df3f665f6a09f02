package gateway

import (
	"net/netip"
	"slices"
)

// shortestInternal keeps a network that takes in half the world from cutting the host off.
const shortestInternal = 8

// internal are the cluster's own networks, which are never on the wire: the host routes them to
// the management port or the bridge. Pods that are known outside are on it.
func internal(s Settings, f facts) []netip.Prefix {
	out := slices.Concat(s.ServiceCIDRs, masqueradeNetworks(), f.joins) // joins is a Node's annotation
	out = slices.DeleteFunc(out, func(p netip.Prefix) bool { return p.Bits() < shortestInternal })
	if !s.Routable {
		out = append(out, s.PodCIDRs...)
	}
	return sortedPrefixes(out)
}

// external are the uplink's own networks, the next hops and other hosts' addresses, wherever they
// lie: nothing may cut the host off. An address of IPv6 that comes and goes by router
// advertisements, which anybody on the link can send, counts only if it is the node's.
func external(h Host, n Node, s Settings, f facts) []netip.Prefix {
	out := append(slices.Clone(n.Addresses), bridgeAddresses(s)...)
	for _, a := range h.Addresses {
		ip := a.Prefix.Addr()
		if a.Device == s.HostDevice() && !a.LinkLocal && !within(masqueradeNetworks(), ip) && (ip.Is4() || !a.Dynamic) {
			out = append(out, a.Prefix)
		}
	}
	for _, hop := range n.NextHops {
		out = append(out, netip.PrefixFrom(hop, hop.BitLen()))
	}
	for _, a := range f.hosts {
		if !within(s.PodCIDRs, a) { // what a host has there it has by its management port
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, r := range h.Defaults {
		if r.Device == s.HostDevice() {
			out = append(out, netip.PrefixFrom(r.NextHop, r.NextHop.BitLen()))
		}
	}
	in := internal(s, f)
	return slices.DeleteFunc(sortedPrefixes(out), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(in, p.Overlaps)
	})
}

func sortedPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
