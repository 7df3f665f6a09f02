package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hop is the next hop of the packets to networks outside that leave by a device.
type Hop struct {
	Device string
	Prefix netip.Prefix // the destinations
	// Via is the next hop. An IPv4 destination may have an IPv6 one (RFC 8950). With the zero Addr,
	// each destination is a neighbour on the device.
	Via netip.Addr
}

// region is a part of a family's addresses. A route covers it if the route contains a probe, and
// has a prefix of at most bits.
type region struct {
	probes []netip.Addr // addresses in it, to which few hosts have routes of their own
	bits   int          // length of the region's prefix
	local  bool         // addresses of private networks: a host may have no route to them
}

// regions returns the parts of the family's addresses to which the kernel may have different
// routes: 0.0.0.0/1 and 128.0.0.0/1, or 2000::/4, 3000::/4 and the local addresses fc00::/7. VPNs
// and operators divide default routes at these boundaries.
func regions(is4 bool) []region {
	addrs := func(texts ...string) []netip.Addr {
		var out []netip.Addr
		for _, t := range texts {
			out = append(out, netip.MustParseAddr(t))
		}

		return out
	}
	if is4 {
		return []region{
			{probes: addrs("64.0.0.1", "32.0.0.1", "96.0.0.1", "16.0.0.1"), bits: 1},
			{probes: addrs("128.0.0.1", "160.0.0.1", "144.0.0.1", "208.0.0.1"), bits: 1},
		}
	}

	return []region{
		{probes: addrs("2000::1", "2400::1", "2600::1", "2800::1"), bits: 4},
		{probes: addrs("3000::1", "3400::1", "3800::1", "3c00::1"), bits: 4},
		{probes: addrs("fc00::1", "fc40::1", "fc80::1", "fcc0::1"), bits: 7, local: true},
	}
}

// Everything returns the prefix with all addresses of a family.
func Everything(is4 bool) netip.Prefix {
	if is4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}

	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Hops asks the kernel for its routes from an address to the networks outside that leave by the
// device: it looks up the route to a probe in each region. Unlike a list of routes, the answer
// includes rules, all tables, nexthop objects and the preference of IPv6 routers. Routes to a part
// of a region, such as 10.0.0.0/8, are not included.
//
// If all regions have the same next hop, Hops returns one for Everything. Otherwise the list is
// sorted by prefix. It is empty if the device has no route, or if the host does not have the source
// address.
func Hops(device string, source netip.Addr) ([]Hop, error) {
	l, err := find(device)
	if err != nil {
		return nil, err
	}

	var out []Hop

	coversAll := true // all regions have a route; local ones need none

	for _, r := range regions(source.Is4()) {
		hop, ok, err := r.hop(l, source)
		if err != nil {
			return nil, err
		}

		if !ok {
			coversAll = coversAll && r.local
			continue
		}

		hop.Device = device
		if !slices.Contains(out, hop) {
			out = append(out, hop)
		}
	}

	differs := func(h Hop) bool { return h.Via != out[0].Via }
	if coversAll && !slices.ContainsFunc(out, differs) { // not all regions are local, so out is not empty
		return []Hop{{Device: device, Prefix: Everything(source.Is4()), Via: out[0].Via}}, nil
	}

	slices.SortFunc(out, func(a, b Hop) int { return a.Prefix.Compare(b.Prefix) })

	return out, nil
}

// hop returns the next hop of the kernel's route by the device that covers the region, without
// Device. It returns false without such a route. It tries several probes, because a longer route
// may hide the route of the region.
func (r region) hop(l netlink.Link, source netip.Addr) (Hop, bool, error) {
	index := l.Attrs().Index
	for _, to := range r.probes {
		route, err := matchingRoute(to, netlink.RouteGetOptions{OifIndex: index, SrcAddr: source.AsSlice()})
		hop, ok := hopBy(index, route)

		if err == nil && !ok && to.Is6() {
			// With a source, the device is only a hint in IPv6. A better route by another device
			// hides that by this one.
			route, err = matchingRoute(to, netlink.RouteGetOptions{OifIndex: index})
			hop, ok = hopBy(index, route)
		}

		if err != nil {
			return Hop{}, false, err
		}

		if ok && hop.Prefix.Bits() <= r.bits {
			return hop, true, nil
		}
	}

	return Hop{}, false, nil
}

// matchingRoute returns the route that the kernel chooses for a packet, or nil.
func matchingRoute(to netip.Addr, o netlink.RouteGetOptions) (*netlink.Route, error) {
	o.FIBMatch = true // the route itself, with its prefix

	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &o)

	// The kernel returns these for routes of types unreachable, prohibit and blackhole as well.
	noRoute := []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL}
	for _, none := range noRoute {
		if errors.Is(err, none) {
			return nil, nil
		}
	}

	if err != nil {
		return nil, fmt.Errorf("find route to %s: %w", to, err)
	}

	if len(routes) == 0 {
		return nil, nil
	}

	return &routes[0], nil
}

// hopBy returns the next hop of a route by the device with this index. It returns false if the
// route has none there, is nil, or is not a unicast route. Of several it returns the one with the
// lowest address, so that the choice is stable.
func hopBy(index int, r *netlink.Route) (Hop, bool) {
	if r == nil || r.Type != unix.RTN_UNICAST {
		return Hop{}, false
	}

	prefix, ok := prefixOf(r.Dst)
	if !ok {
		prefix = Everything(r.Family == unix.AF_INET)
	}

	list := r.MultiPath
	if len(list) == 0 {
		list = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via, Encap: r.Encap}}
	}

	var vias []netip.Addr

	for _, n := range list {
		isUsable := n.Encap == nil && n.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0
		if n.LinkIndex == index && isUsable {
			vias = append(vias, viaOf(n.Gw, n.Via))
		}
	}

	if len(vias) == 0 {
		return Hop{}, false
	}

	return Hop{Prefix: prefix, Via: slices.MinFunc(vias, netip.Addr.Compare)}, true
}

// viaOf returns the address of a next hop: via if it is of another family than the route (RTA_VIA),
// otherwise gw (RTA_GATEWAY). It returns the zero Addr without one.
func viaOf(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok && v != nil {
		gw = v.Addr
	}

	a, _ := netip.AddrFromSlice(gw)
	if a.Unmap().IsUnspecified() {
		return netip.Addr{}
	}

	return a.Unmap()
}

// DefaultDevice returns the device of the host's best default route with a next hop. Without such a
// route it returns the OutsideDevice, or "". IPv4 has precedence.
func DefaultDevice() (string, error) {
	routes, err := DefaultRoutes()
	if err != nil {
		return "", err
	}

	if len(routes) > 0 {
		return routes[0].Device, nil
	}

	for _, is4 := range []bool{true, false} {
		if device, err := OutsideDevice(is4); device != "" || err != nil {
			return device, err
		}
	}

	return "", nil
}

// OutsideDevice returns the device by which the host's own packets to the networks outside leave,
// or "" without a route to one of the regions.
func OutsideDevice(is4 bool) (string, error) {
	for _, r := range regions(is4) {
		route, err := matchingRoute(r.probes[0], netlink.RouteGetOptions{})
		if err != nil {
			return "", err
		}

		if route == nil || route.Type != unix.RTN_UNICAST {
			continue
		}

		index := route.LinkIndex
		if len(route.MultiPath) > 0 {
			index = route.MultiPath[0].LinkIndex
		}

		return nameOf(index), nil
	}

	return "", nil
}
