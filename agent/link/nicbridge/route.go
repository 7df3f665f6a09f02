package nicbridge

import (
	"bytes"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// route contains the fields of a route message that the move needs.
type route struct {
	msg      []byte
	family   byte
	table    uint32
	protocol byte
	metric   uint32
	dst, src netip.Prefix // src is the preferred source, with all bits
	group    string       // the kernel's sort key: routes of one group are adjacent
	devices  []int
	hops     []netip.Addr // next hops per device, same order; invalid for none
	byObject bool         // its next hops are in a nexthop object
	cloned   bool         // a cache entry of IPv6
}

// parseRoute reads a route message.
func parseRoute(msg []byte) (route, error) {
	list, err := attrs(msg, routeHeader)
	if err != nil {
		return route{}, err
	}

	r := route{
		msg:      msg,
		family:   msg[0],
		table:    uint32(msg[4]),
		protocol: msg[5],
		metric:   u32(find(list, unix.RTA_PRIORITY)),
	}

	r.cloned = order.Uint32(msg[8:])&unix.RTM_F_CLONED != 0
	if b := find(list, unix.RTA_TABLE); b != nil {
		r.table = u32(b)
	}

	if a, ok := netip.AddrFromSlice(find(list, unix.RTA_DST)); ok {
		r.dst = netip.PrefixFrom(a, int(msg[1]))
	}

	if a, ok := netip.AddrFromSlice(find(list, unix.RTA_PREFSRC)); ok {
		r.src = netip.PrefixFrom(a, a.BitLen())
	}

	r.byObject = find(list, rtaNextHopID) != nil
	if b := find(list, unix.RTA_OIF); b != nil {
		r.addHop(int(u32(b)), list)
	}

	hops := find(list, unix.RTA_MULTIPATH)
	for len(hops) >= nextHop {
		n := int(order.Uint16(hops))
		if n < nextHop || n > len(hops) {
			break
		}

		hop, err := attrs(hops[:n], nextHop)
		if err != nil {
			return route{}, err
		}

		r.addHop(int(order.Uint32(hops[4:])), hop)
		hops = hops[min((n+3)&^3, len(hops)):]
	}

	sortKey := bytes.Clone(msg[:4]) // family, lengths of the prefixes, TOS
	sortKey = append(sortKey, put32(r.table)...)
	sortKey = append(sortKey, put32(r.metric)...)
	sortKey = append(sortKey, find(list, unix.RTA_DST)...)
	sortKey = append(sortKey, find(list, unix.RTA_SRC)...)
	r.group = string(sortKey)

	return r, nil
}

// addHop adds the device and next hop of a list of attributes.
func (r *route) addHop(device int, list []attr) {
	gw := find(list, unix.RTA_GATEWAY)
	if via := find(list, unix.RTA_VIA); len(via) > 2 { // of another family: struct rtvia
		gw = via[2:]
	}

	hop, _ := netip.AddrFromSlice(gw)

	r.devices, r.hops = append(r.devices, device), append(r.hops, hop)
}

// by reports whether the route uses the device.
func (r route) by(device int) bool { return slices.Contains(r.devices, device) }

// hasGateway reports whether the route has a next hop.
func (r route) hasGateway() bool {
	return slices.ContainsFunc(r.hops, netip.Addr.IsValid)
}

// advertised reports whether the kernel learned the route from router advertisements (default route
// or route information option) and renews it.
func (r route) advertised() bool {
	return r.family == unix.AF_INET6 && r.protocol == unix.RTPROT_RA
}

// automatic reports whether the kernel adds and removes the route with an address of the host: it
// is in the table local.
func (r route) automatic() bool {
	return r.table == unix.RT_TABLE_LOCAL && r.protocol == unix.RTPROT_KERNEL
}

// connected reports whether the kernel created the route with the address, in another table.
func (r route) connected(a address) bool {
	if r.protocol != unix.RTPROT_KERNEL || r.hasGateway() || r.table == unix.RT_TABLE_LOCAL {
		return false
	}

	return r.src.IsValid() && r.src.Addr() == a.key.Addr() || !r.src.IsValid() && r.dst == a.key.Masked()
}

// worse returns the route with a metric one higher.
func (r route) worse() ([]byte, error) {
	list, err := attrs(r.msg, routeHeader)
	if err != nil {
		return nil, err
	}

	list = slices.DeleteFunc(list, func(a attr) bool { return a.typ() == unix.RTA_PRIORITY })

	return build(r.msg[:routeHeader], append(list, attr{unix.RTA_PRIORITY, put32(r.metric + 1)})), nil
}
