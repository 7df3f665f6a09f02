package service

import (
	"net/netip"
	"slices"
	"strings"
)

// parseAddrs parses addresses. It skips texts that are not addresses, because some fields may
// contain a name instead.
func parseAddrs(texts ...string) []netip.Addr {
	var out []netip.Addr

	for _, s := range texts {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap())
		}
	}

	return out
}

// OfFamily returns the addresses of one family, in their order.
func OfFamily(addrs []netip.Addr, is4 bool) []netip.Addr {
	var out []netip.Addr

	for _, a := range addrs {
		if a.Is4() == is4 {
			out = append(out, a)
		}
	}

	return out
}

// sorted sorts the addresses in place and removes duplicates.
func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// prefixList returns the prefixes as text, for messages.
func prefixList(prefixes []netip.Prefix) string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}

	return strings.Join(out, ", ")
}

// FamilyName returns "IPv4" or "IPv6".
func FamilyName(is4 bool) string {
	if is4 {
		return "IPv4"
	}

	return "IPv6"
}

// sourceRanges returns the ranges of one family in a Service's loadBalancerSourceRanges. Without
// such a range all clients of the family are allowed, as in kube-proxy (newBaseServiceInfo). With
// more than MaxSourceRanges no client is allowed.
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

// noClient is the prefix of the unspecified address alone, which no client has.
func noClient(is4 bool) netip.Prefix {
	a := netip.IPv6Unspecified()
	if is4 {
		a = netip.IPv4Unspecified()
	}

	return netip.PrefixFrom(a, a.BitLen())
}
