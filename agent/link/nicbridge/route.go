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
	dst      netip.Prefix // invalid for a default route
	src      netip.Prefix // the preferred source, with all bits
	group    string       // the kernel's sort key: the kernel lists routes of one group together
	devices  []int        // interface indexes; several for a multipath route
	hops     []netip.Addr // next hops of devices, in the same order; invalid for none
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
		family:   msg[familyAt],
		table:    uint32(msg[4]),
		protocol: msg[5],
		metric:   u32(find(list, unix.RTA_PRIORITY)),
	}

	r.cloned = order.Uint32(msg[routeFlagsAt:])&unix.RTM_F_CLONED != 0
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
	for len(hops) >= hopHeader {
		n := int(order.Uint16(hops))
		if n < hopHeader || n > len(hops) {
			break
		}

		hop, err := attrs(hops[:n], hopHeader)
		if err != nil {
			return route{}, err
		}

		r.addHop(int(order.Uint32(hops[indexAt:])), hop)
		hops = hops[min(align4(n), len(hops)):]
	}

	sortKey := bytes.Clone(msg[:4]) // family, lengths of the prefixes, TOS
	sortKey = append(sortKey, put32(r.table)...)
	sortKey = append(sortKey, put32(r.metric)...)
	sortKey = append(sortKey, find(list, unix.RTA_DST)...)
	sortKey = append(sortKey, find(list, unix.RTA_SRC)...)
	r.group = string(sortKey)

	return r, nil
}

// addHop adds a device, and the next hop in the attributes of the route or of one of its next hops.
func (r *route) addHop(device int, list []attr) {
	const viaAddrAt = 2 // in struct rtvia, after the family

	gw := find(list, unix.RTA_GATEWAY)
	if via := find(list, unix.RTA_VIA); len(via) > viaAddrAt { // of another family than the route
		gw = via[viaAddrAt:]
	}

	hop, _ := netip.AddrFromSlice(gw)

	r.devices, r.hops = append(r.devices, device), append(r.hops, hop)
}

// by reports whether the route leads through the device with this index.
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

// connected reports whether the kernel created the route together with the address, as the route to
// the address's network. The kernel sets the source for IPv4 only.
func (r route) connected(a address) bool {
	if r.protocol != unix.RTPROT_KERNEL || r.hasGateway() || r.table == unix.RT_TABLE_LOCAL {
		return false
	}

	if r.src.IsValid() {
		return r.src.Addr() == a.key.Addr()
	}

	return r.dst == a.key.Masked()
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
