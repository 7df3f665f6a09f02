package service

import (
	"net/netip"
	"strings"
)

// sourceRanges returns those of a Service's loadBalancerSourceRanges that are of one family; empty:
// all clients of it may come. Ranges of the other family do not count (kube-proxy's
// newBaseServiceInfo). More than MaxSourceRanges let no client in.
func sourceRanges(ranges []string, is4 bool) []netip.Prefix {
	if len(ranges) > MaxSourceRanges {
		return []netip.Prefix{noClient(is4)}
	}
	var out []netip.Prefix
	for _, text := range ranges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text)) // validation lets spaces pass
		if err == nil && p.Addr().Is4() == is4 {
			out = append(out, p.Masked())
		}
	}
	return out
}

// noClient is the prefix of the unspecified address, from which no packet comes.
func noClient(is4 bool) netip.Prefix {
	a := netip.IPv6Unspecified()
	if is4 {
		a = netip.IPv4Unspecified()
	}
	return netip.PrefixFrom(a, a.BitLen())
}
