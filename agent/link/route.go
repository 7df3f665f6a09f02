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

// DefaultRoute is one default route of the host.
type DefaultRoute struct {
	Device  string
	NextHop netip.Addr
	Metric  int

	Protocol int // its origin, rtm_protocol: RTPROT_BOOT, _DHCP, …
}

// DefaultRoutes returns the default routes of the main table with a next hop, IPv4 first, best
// metric first. For a multipath route it returns the first next hop.
func DefaultRoutes() ([]DefaultRoute, error) {
	var out []DefaultRoute

	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retry(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN},
				netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}

		var ofFamily []DefaultRoute

		for _, r := range routes {
			if to, ok := prefixOf(r.Dst); ok && to.Bits() != 0 {
				continue
			}

			index, gw := r.LinkIndex, r.Gw
			if len(r.MultiPath) > 0 {
				index, gw = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
			}

			hop, ok := netip.AddrFromSlice(gw)

			l, err := netlink.LinkByIndex(index)
			if !ok || err != nil {
				continue
			}

			ofFamily = append(ofFamily, DefaultRoute{
				Device:   l.Attrs().Name,
				NextHop:  hop.Unmap(),
				Metric:   r.Priority,
				Protocol: int(r.Protocol),
			})
		}

		slices.SortStableFunc(ofFamily, func(a, b DefaultRoute) int { return a.Metric - b.Metric })
		out = append(out, ofFamily...)
	}

	return out, nil
}

// AddDefaultRoute adds a default route. It is not an error if the route is there already.
func AddDefaultRoute(r DefaultRoute) error {
	l, err := find(r.Device)
	if err != nil {
		return err
	}

	route := netlink.Route{
		LinkIndex: l.Attrs().Index,
		Dst:       ipNet(Everything(r.NextHop.Is4())),
		Gw:        r.NextHop.AsSlice(),
		Priority:  r.Metric,
		Protocol:  netlink.RouteProtocol(r.Protocol),
	}
	if err := netlink.RouteAdd(&route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add default route via %s of %s: %w", r.NextHop, r.Device, err)
	}

	return nil
}

// SyncRoutes sets the device's static routes (protocol static, main table) to exactly want, which
// maps destination prefixes to next hops. Routes of other protocols stay.
func SyncRoutes(device string, want map[netip.Prefix]netip.Addr) error {
	l, err := find(device)
	if err != nil {
		return err
	}

	have, err := routesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	for _, r := range have {
		p, ok := prefixOf(r.Dst)
		if r.Protocol != unix.RTPROT_STATIC || ok && want[p].IsValid() {
			continue
		}

		if err := netlink.RouteDel(&r); err != nil {
			return fmt.Errorf("delete route %s of %s: %w", r.Dst, device, err)
		}
	}

	for p, hop := range want {
		r := netlink.Route{
			LinkIndex: l.Attrs().Index,
			Dst:       ipNet(p),
			Gw:        net.IP(hop.AsSlice()),
			Protocol:  unix.RTPROT_STATIC,
		}
		if err := putRoute(have, r); err != nil {
			return fmt.Errorf("add route %s via %s of %s: %w", p, hop, device, err)
		}
	}

	return nil
}

// routesOf returns the routes of the main table by the device.
func routesOf(l netlink.Link, family int) ([]netlink.Route, error) {
	list, err := retry(func() ([]netlink.Route, error) { return netlink.RouteList(l, family) })
	if err != nil {
		return nil, fmt.Errorf("list routes of %s: %w", l.Attrs().Name, err)
	}

	return list, nil
}

// putRoute adds or replaces the route, unless have, the device's present routes, contains it. The
// kernel announces an IPv6 route even if an identical one replaces it. At each announcement
// ovs-vswitchd deletes the neighbours of its tunnels, and loses their packets until they are
// resolved again.
func putRoute(have []netlink.Route, want netlink.Route) error {
	if slices.ContainsFunc(have, func(r netlink.Route) bool { return sameRoute(r, want) }) {
		return nil
	}

	return netlink.RouteReplace(&want)
}

// defaultMetric6 is the metric of an IPv6 route that is added without one: IP6_RT_PRIO_USER of
// net/ipv6.h. For IPv4 it is 0.
const defaultMetric6 = 1024

// sameRoute reports whether the kernel's route r is the route that a request with want makes.
func sameRoute(r, want netlink.Route) bool {
	to, ok := prefixOf(r.Dst)
	wanted, _ := prefixOf(want.Dst)

	metric := want.Priority
	if metric == 0 && wanted.Addr().Is6() {
		metric = defaultMetric6
	}

	const onlink = int(netlink.FLAG_ONLINK)

	isPlain := r.Type == unix.RTN_UNICAST && len(r.MultiPath) == 0 && r.Encap == nil

	return ok && to == wanted && r.LinkIndex == want.LinkIndex && isPlain &&
		r.Gw.Equal(want.Gw) && r.Src.Equal(want.Src) && r.MTU == want.MTU && r.Protocol == want.Protocol &&
		r.Priority == metric && r.Flags&onlink == want.Flags&onlink
}
