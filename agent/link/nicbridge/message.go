package nicbridge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A message is what the kernel sends in a dump and accepts in a request, without struct nlmsghdr: a
// fixed part, which starts with the family, and attributes. These are the fixed parts, with the
// offsets of the fields that this package uses:
//
//	address    struct ifaddrmsg      1 length of the prefix, 2 flags, 4 interface index
//	route      struct rtmsg          1 length of the prefix, 4 table, 5 protocol, 8 flags
//	rule       struct fib_rule_hdr   8 flags
//	neighbour  struct ndmsg          4 interface index, 8 state, 10 flags
//	next hop   struct rtnexthop      0 length with attributes, 2 flags, 4 interface index
//
// A next hop is an element of the attribute RTA_MULTIPATH. Flags of routes and rules have 4 bytes,
// the state has 2, and other flags have 1. An attribute is struct rtattr: its length with these 4
// bytes uint16, its type uint16, data, and padding to a multiple of 4.
const (
	familyAt = 0
	indexAt  = 4 // in addresses, neighbours and next hops

	addrFlagsAt  = 2
	routeFlagsAt = 8
	ruleFlagsAt  = 8
	stateAt      = 8 // in neighbours
	neighFlagsAt = 10
	hopFlagsAt   = 2
)

// Lengths of the fixed parts.
const (
	addrHeader  = 8
	routeHeader = 12
	ruleHeader  = 12
	neighHeader = 12
	hopHeader   = 8
	attrHeader  = 4
)

// Constants of linux/netlink.h, rtnetlink.h and fib_rules.h that package unix lacks.
const (
	nlaTypeMask    = 0x3fff
	rtaNextHopID   = 30  // RTA_NH_ID
	ruleInvert     = 0x2 // FIB_RULE_INVERT
	fraIIFName     = 3   // FRA_IIFNAME
	fraOIFName     = 17  // FRA_OIFNAME
	userHZ         = 100 // ticks per second in lifetimes
	addrFlagsToSet = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR |
		unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN
)

// order is the byte order of netlink.
var order = binary.NativeEndian

// attr is one attribute.
type attr struct {
	kind uint16 // its type, with the flag bits NLA_F_NESTED and NLA_F_NET_BYTEORDER
	data []byte
}

// typ returns the type of the attribute without flag bits.
func (a attr) typ() uint16 { return a.kind & nlaTypeMask }

// attrs parses the attributes of a message after its fixed part, which has header bytes.
func attrs(msg []byte, header int) ([]attr, error) {
	var out []attr

	if len(msg) < header {
		return nil, fmt.Errorf("read message: %d bytes, want %d", len(msg), header)
	}

	for b := msg[header:]; len(b) >= attrHeader; {
		n := int(order.Uint16(b))
		if n < attrHeader || n > len(b) {
			return nil, fmt.Errorf("read attribute: length %d of %d", n, len(b))
		}

		out = append(out, attr{order.Uint16(b[2:]), bytes.Clone(b[attrHeader:n])})
		b = b[min(align4(n), len(b)):]
	}

	return out, nil
}

// build returns the message with a fixed part and attributes.
func build(header []byte, list []attr) []byte {
	out := bytes.Clone(header)
	for _, a := range list {
		out = order.AppendUint16(out, uint16(attrHeader+len(a.data)))
		out = order.AppendUint16(out, a.kind)
		out = append(out, a.data...)
		out = append(out, make([]byte, align4(len(out))-len(out))...)
	}

	return out
}

// align4 rounds n up to a multiple of 4.
func align4(n int) int { return (n + 3) &^ 3 }

// find returns the data of the first attribute of a type, or nil.
func find(list []attr, typ uint16) []byte {
	for _, a := range list {
		if a.typ() == typ {
			return a.data
		}
	}

	return nil
}

// u32 reads a number, or returns 0 if there is none.
func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}

	return order.Uint32(b)
}

func put32(v uint32) []byte { return order.AppendUint32(nil, v) }

// device is one end of a move.
type device struct {
	name  string
	index int
}

// The functions retarget… return the message of a dump as a request for another device: they change
// the device, and remove flags that the kernel does not accept.

// retargetAddr returns the message for the device named to with this index, instead of the device
// named from. With noDAD, an IPv6 address is usable at once, without duplicate address detection.
func retargetAddr(msg []byte, from, to string, index int, noDAD bool) ([]byte, error) {
	list, err := attrs(msg, addrHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:addrHeader])
	order.PutUint32(head[indexAt:], uint32(index))

	flags := uint32(head[addrFlagsAt])
	if b := find(list, unix.IFA_FLAGS); b != nil {
		flags = u32(b)
	}

	flags &= addrFlagsToSet
	if noDAD && head[familyAt] == unix.AF_INET6 {
		flags |= unix.IFA_F_NODAD
	}

	head[addrFlagsAt] = 0 // the attribute IFA_FLAGS has them

	var out []attr

	for _, a := range list {
		switch a.typ() {
		case unix.IFA_FLAGS:
			continue
		case unix.IFA_LABEL:
			a.data = []byte(relabel(cstring(a.data), from, to) + "\x00")
		}

		out = append(out, a)
	}

	return build(head, append(out, attr{unix.IFA_FLAGS, put32(flags)})), nil
}

// relabel replaces the device's name in the label of an IPv4 address, such as "eth0:1". It keeps
// the rest if there is room for it.
func relabel(label, from, to string) string {
	rest, ok := strings.CutPrefix(label, from)
	if !ok {
		return label
	}

	if len(to)+len(rest) >= unix.IFNAMSIZ {
		return to
	}

	return to + rest
}

// retargetRoute returns the route with device to instead of device from, also in its next hops.
// from and to are interface indexes. Other devices stay.
func retargetRoute(msg []byte, from, to int) ([]byte, error) {
	list, err := attrs(msg, routeHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:routeHeader])
	order.PutUint32(head[routeFlagsAt:], order.Uint32(head[routeFlagsAt:])&unix.RTNH_F_ONLINK)

	var out []attr

	for _, a := range list {
		switch a.typ() {
		case unix.RTA_OIF:
			if int(u32(a.data)) == from {
				a.data = put32(uint32(to))
			}
		case unix.RTA_MULTIPATH:
			a.data = retargetHops(a.data, from, to)
		case unix.RTA_CACHEINFO:
			if a = expiry(a, head[familyAt]); a.data == nil {
				continue
			}
		}

		out = append(out, a)
	}

	return build(head, out), nil
}

// expiry converts the lifetime of an IPv6 route from the format of a dump, RTA_CACHEINFO in ticks,
// to that of a request, RTA_EXPIRES in seconds. For a permanent route the result has no data.
func expiry(a attr, family byte) attr {
	const expires = 8 // in struct rta_cacheinfo, after clntref and lastuse
	if family != unix.AF_INET6 || len(a.data) < expires+4 || int32(u32(a.data[expires:])) <= 0 {
		return attr{}
	}

	return attr{unix.RTA_EXPIRES, put32(max(1, u32(a.data[expires:])/userHZ))}
}

// retargetHops changes the device of the next hops of a multipath route.
func retargetHops(b []byte, from, to int) []byte {
	b = bytes.Clone(b)
	for at := 0; at+hopHeader <= len(b); {
		n := int(order.Uint16(b[at:]))

		b[at+hopFlagsAt] &= unix.RTNH_F_ONLINK
		if int(order.Uint32(b[at+indexAt:])) == from {
			order.PutUint32(b[at+indexAt:], uint32(to))
		}

		if n < hopHeader {
			break
		}

		at += align4(n)
	}

	return b
}

// retargetRule returns the rule with the device named to instead of the device named from.
func retargetRule(msg []byte, from, to string) ([]byte, error) {
	list, err := attrs(msg, ruleHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:ruleHeader])
	order.PutUint32(head[ruleFlagsAt:], order.Uint32(head[ruleFlagsAt:])&ruleInvert)

	for i, a := range list {
		if t := a.typ(); (t == fraIIFName || t == fraOIFName) && cstring(a.data) == from {
			list[i].data = []byte(to + "\x00")
		}
	}

	return build(head, list), nil
}

// retargetNeigh returns the neighbour for the device with this index. A learned entry becomes
// stale: it is used at once and probed again.
func retargetNeigh(msg []byte, to int) ([]byte, error) {
	list, err := attrs(msg, neighHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:neighHeader])
	order.PutUint32(head[indexAt:], uint32(to))

	if order.Uint16(head[stateAt:])&unix.NUD_PERMANENT == 0 {
		order.PutUint16(head[stateAt:], unix.NUD_STALE)
	}

	isKept := func(a attr) bool { return a.typ() == unix.NDA_DST || a.typ() == unix.NDA_LLADDR }
	list = slices.DeleteFunc(list, func(a attr) bool { return !isKept(a) })

	return build(head, list), nil
}

// canonicalRoute returns a comparable form of a route: attributes sorted, without the lifetime.
func canonicalRoute(msg []byte) string { return canonical(msg, routeHeader, unix.RTA_EXPIRES) }

// canonicalRule returns a comparable form of a rule.
func canonicalRule(msg []byte) string { return canonical(msg, ruleHeader) }

// canonical returns the message with its attributes sorted, without those of the given types.
func canonical(msg []byte, header int, without ...uint16) string {
	list, err := attrs(msg, header)
	if err != nil {
		return string(msg)
	}

	list = slices.DeleteFunc(list, func(a attr) bool { return slices.Contains(without, a.typ()) })
	slices.SortStableFunc(list, func(a, b attr) int { return cmp.Compare(a.typ(), b.typ()) })

	return string(build(msg[:header], list))
}

// cstring returns the text before the final zero.
func cstring(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
