package plan

import (
	"crypto/sha256"
	"net"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// MAC derives a port's MAC address from its first IP address. For IPv4 it is 0a:58 and the four bytes
// of the address, as in ovn-kubernetes. For IPv6 it is 0a:58 and the last four bytes of the SHA-256
// of the address's text. ovn-kubernetes uses the first four bytes.
func MAC(addr netip.Addr) net.HardwareAddr {
	mac := net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 0}

	if addr.Is4() {
		b := addr.As4()
		copy(mac[2:], b[:])

		return mac
	}

	sum := sha256.Sum256([]byte(addr.String()))
	copy(mac[2:], sum[len(sum)-4:])

	return mac
}

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

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}

	return false
}
