package service

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// parseAddrs leaves out what is not an address: the API server has refused it, or the field is a
// name as well.
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

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

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

// Protocol returns what a port's protocol means: TCP if it is empty.
func Protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// TCP is the protocol as Kubernetes writes it.
const TCP = corev1.ProtocolTCP

// Protocol numbers of IANA.
const (
	NumberTCP  = 6
	NumberUDP  = 17
	NumberSCTP = 132
)

// ProtocolNumber returns the number of a protocol that a Service can have.
func ProtocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return NumberUDP
	case corev1.ProtocolSCTP:
		return NumberSCTP
	}
	return NumberTCP
}

// known reports whether a Service can have the protocol.
func known(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}
