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

// Lengths of the fixed parts of rtnetlink messages (linux/rtnetlink.h,
// if_addr.h, fib_rules.h, neighbour.h).
const (
	addrHeader  = 8
	routeHeader = 12
	ruleHeader  = 12
	neighHeader = 12
	nextHop     = 8
)

// Constants of linux/netlink.h, rtnetlink.h and fib_rules.h that package unix lacks.
const (
	nlaTypeMask    = 0x3fff
	rtaNextHopID   = 30 // RTA_NH_ID
	ruleInvert     = 0x2
	fraIIFName     = 3
	fraOIFName     = 17
	userHZ         = 100 // ticks per second in lifetimes
	addrFlagsToSet = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR |
		unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN
)

// order is the byte order of netlink.
var order = binary.NativeEndian

// attr is one attribute. kind includes the kernel's flag bits.
type attr struct {
	kind uint16
	data []byte
}

func (a attr) typ() uint16 { return a.kind & nlaTypeMask }

// attrs parses the attributes after the fixed part of a message.
func attrs(msg []byte, header int) ([]attr, error) {
	var out []attr

	if len(msg) < header {
		return nil, fmt.Errorf("read message: %d bytes, want %d", len(msg), header)
	}

	for b := msg[header:]; len(b) >= 4; {
		n := int(order.Uint16(b))
		if n < 4 || n > len(b) {
			return nil, fmt.Errorf("read attribute: length %d of %d", n, len(b))
		}

		out = append(out, attr{order.Uint16(b[2:]), bytes.Clone(b[4:n])})
		b = b[min((n+3)&^3, len(b)):]
	}

	return out, nil
}

// build returns the message with a fixed part and attributes.
func build(header []byte, list []attr) []byte {
	out := bytes.Clone(header)
	for _, a := range list {
		out = order.AppendUint16(out, uint16(4+len(a.data)))
		out = order.AppendUint16(out, a.kind)
		out = append(out, a.data...)
		out = append(out, make([]byte, -len(out)&3)...)
	}

	return out
}

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

// retargetAddr returns the message that adds the address to the device named to, instead of the
// device named from. With noDAD an IPv6 address is usable at once.
func retargetAddr(msg []byte, from, to string, index int, noDAD bool) ([]byte, error) {
	list, err := attrs(msg, addrHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:addrHeader])
	order.PutUint32(head[4:], uint32(index))

	flags := uint32(head[2])
	if b := find(list, unix.IFA_FLAGS); b != nil {
		flags = u32(b)
	}

	flags &= addrFlagsToSet
	if noDAD && head[0] == unix.AF_INET6 {
		flags |= unix.IFA_F_NODAD
	}

	head[2] = 0 // the flags are in an attribute

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

// relabel keeps the part of an IPv4 label after the device's name.
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

// retargetRoute returns the message that moves the route, or its next hops through device from, to
// device to.
func retargetRoute(msg []byte, from, to int) ([]byte, error) {
	list, err := attrs(msg, routeHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:routeHeader])
	order.PutUint32(head[8:], order.Uint32(head[8:])&unix.RTNH_F_ONLINK)

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
			if a = expiry(a, head[0]); a.data == nil {
				continue
			}
		}

		out = append(out, a)
	}

	return build(head, out), nil
}

// expiry converts the lifetime of an IPv6 route from the format of a dump to that of a request. A
// permanent route has no data.
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
	for at := 0; at+nextHop <= len(b); {
		n := int(order.Uint16(b[at:]))

		b[at+2] &= unix.RTNH_F_ONLINK
		if int(order.Uint32(b[at+4:])) == from {
			order.PutUint32(b[at+4:], uint32(to))
		}

		if n < nextHop {
			break
		}

		at += (n + 3) &^ 3
	}

	return b
}

// retargetRule returns the rule with the device's name changed.
func retargetRule(msg []byte, from, to string) ([]byte, error) {
	list, err := attrs(msg, ruleHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:ruleHeader])
	order.PutUint32(head[8:], order.Uint32(head[8:])&ruleInvert)

	for i, a := range list {
		if t := a.typ(); (t == fraIIFName || t == fraOIFName) && cstring(a.data) == from {
			list[i].data = []byte(to + "\x00")
		}
	}

	return build(head, list), nil
}

// retargetNeigh returns the neighbour for another device. A learned entry becomes stale: it is used
// at once and probed again.
func retargetNeigh(msg []byte, to int) ([]byte, error) {
	list, err := attrs(msg, neighHeader)
	if err != nil {
		return nil, err
	}

	head := bytes.Clone(msg[:neighHeader])
	order.PutUint32(head[4:], uint32(to))

	if order.Uint16(head[8:])&unix.NUD_PERMANENT == 0 {
		order.PutUint16(head[8:], unix.NUD_STALE)
	}

	list = slices.DeleteFunc(list,
		func(a attr) bool { return a.typ() != unix.NDA_DST && a.typ() != unix.NDA_LLADDR })

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
