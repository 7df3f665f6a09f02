package cluster

import (
	"net/netip"
	"slices"
)

// Contains reports whether one of the networks contains the address. An IPv4 network does not
// contain an IPv4-mapped IPv6 address.
func Contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
