package gateway

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// This file computes the networks for the check of packets from the wire: internal ones, which
// never appear on the wire, and exceptions from them, which are called external (see
// verdict.Config).

// minInternalBits limits the size of internal networks, so that a very large one, such as 0.0.0.0/0
// in an annotation, cannot cut the host off.
const minInternalBits = 8

// internalNetworks returns the cluster's own networks, which never appear on the wire: the host
// routes them to the management port or the bridge. Pod networks are excluded if pods are routable
// from outside.
func internalNetworks(s Settings, f facts) []netip.Prefix {
	out := slices.Concat(s.ServiceCIDRs, masqueradeNetworks(), f.joins)
	out = slices.DeleteFunc(out, func(p netip.Prefix) bool { return p.Bits() < minInternalBits })

	if !s.Routable {
		out = append(out, s.PodCIDRs...)
	}

	return sortedPrefixes(out)
}

// externalNetworks returns the networks that must stay reachable for the host: those of the uplink,
// the next hops, and the addresses of other hosts. A dynamic IPv6 address counts only if it is the
// node's, because any peer on the link can cause one with a router advertisement. Only those that
// overlap an internal network are listed, as the programs check internal networks alone.
func externalNetworks(h Host, n Node, s Settings, f facts) []netip.Prefix {
	out := append(slices.Clone(n.Addresses), bridgeAddresses(s)...)
	for _, a := range h.Addresses {
		ip := a.Prefix.Addr()
		if a.Device == s.HostDevice() && !a.LinkLocal && !cluster.Contains(masqueradeNetworks(), ip) &&
			(ip.Is4() || !a.Dynamic) {
			out = append(out, a.Prefix)
		}
	}

	for _, hop := range n.NextHops {
		out = append(out, hostPrefix(hop))
	}

	for _, r := range n.Routes { // of a route without a next hop, the destinations stay internal
		if r.Via.IsValid() {
			out = append(out, hostPrefix(r.Via))
		}
	}

	for _, a := range f.hosts {
		if !cluster.Contains(s.PodCIDRs, a) { // the host reaches addresses there through its management port
			out = append(out, hostPrefix(a))
		}
	}

	for _, r := range h.Defaults {
		if r.Device == s.HostDevice() {
			out = append(out, hostPrefix(r.NextHop))
		}
	}

	internal := internalNetworks(s, f)

	return slices.DeleteFunc(sortedPrefixes(out), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(internal, p.Overlaps)
	})
}

// sortedPrefixes returns the networks of the prefixes, sorted and without duplicates.
func sortedPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Masked())
	}

	slices.SortFunc(out, netip.Prefix.Compare)

	return slices.Compact(out)
}
