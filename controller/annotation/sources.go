package annotation

import (
	"net/netip"
	"strings"
)

// SourceRanges are those of a Service's loadBalancerSourceRanges that are of one family;
// none: everybody of it may come. Ranges of the other family do not count (kube-proxy's
// newBaseServiceInfo). More than MaxSourceRanges are as one that nobody is in. Controller
// and agents must agree.
func SourceRanges(ranges []string, is4 bool) []netip.Prefix {
	if len(ranges) > MaxSourceRanges {
		return []netip.Prefix{nobody(is4)}
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

// nobody is the prefix of the unspecified address, from which no packet comes.
func nobody(is4 bool) netip.Prefix {
	a := netip.IPv6Unspecified()
	if is4 {
		a = netip.IPv4Unspecified()
	}
	return netip.PrefixFrom(a, a.BitLen())
}
