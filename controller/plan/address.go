package plan

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// RouterAddress returns the router's address in a node subnet: the first one.
func RouterAddress(subnet netip.Prefix) netip.Prefix { return nth(subnet, 1) }

// ManagementAddress returns the management port's address in a node subnet: the second one.
func ManagementAddress(subnet netip.Prefix) netip.Prefix { return annotation.ManagementAddress(subnet) }

// nth returns the subnet's n-th address, counted from 0, with the length of the subnet.
func nth(subnet netip.Prefix, n int) netip.Prefix {
	addr := subnet.Masked().Addr()
	for range n {
		addr = addr.Next()
	}

	return netip.PrefixFrom(addr, subnet.Bits())
}

func prefixStrings(prefixes []netip.Prefix) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}

	return out
}

func addrStrings(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}

	return out
}

// familyWord returns the family in OVN's matches.
func familyWord(is4 bool) string {
	if is4 {
		return "ip4"
	}

	return "ip6"
}

// wholeFamily returns the prefix of all addresses of a family.
func wholeFamily(is4 bool) netip.Prefix {
	if is4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}

	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// firstOfFamily returns the first IPv4 or IPv6 prefix, and whether there is one.
func firstOfFamily(prefixes []netip.Prefix, is4 bool) (netip.Prefix, bool) {
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			return p, true
		}
	}

	return netip.Prefix{}, false
}

// ofFamily returns the prefixes of one family.
func ofFamily(prefixes []netip.Prefix, is4 bool) []netip.Prefix {
	var out []netip.Prefix

	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			out = append(out, p)
		}
	}

	return out
}
