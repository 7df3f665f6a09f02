package annotation

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HostAddresses returns the addresses at which the node's host is reached, as far as its
// Node object says: host-cidrs, the gateway's addresses, the Node's status, and the
// management port's address in each pod subnet. An annotation that is malformed adds
// nothing. Addresses that each host has for itself alone (loopback, link-local) are not
// among them. The result is sorted. Controller and agents must agree.
func HostAddresses(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	add := func(a netip.Addr) {
		if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	own, _ := ParseHostCIDRs(n.Annotations) // nil if it is malformed
	gateway, _ := ParseGateway(n.Annotations)
	for _, p := range slices.Concat(own, gateway.Addresses) {
		add(p.Addr())
	}
	subnets, _ := ParseNodeSubnets(n.Annotations)
	for _, s := range subnets {
		add(ManagementAddress(s).Addr())
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil { // of type Hostname it is a name
			add(ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// ManagementAddress is the management port's address in a node subnet, the second.
func ManagementAddress(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(subnet.Masked().Addr().Next().Next(), subnet.Bits())
}
