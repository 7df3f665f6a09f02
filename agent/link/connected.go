package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ConnectedRoute is the route to the network of a device's address, in the main table. The kernel
// or a DHCP client adds it together with the address. Without it the host may not reach the
// neighbours there, so the agent restores it if a program has removed it.
type ConnectedRoute struct {
	Device   string       `json:"device"`
	Prefix   netip.Prefix `json:"prefix"`
	Source   netip.Addr   `json:"source"` // the zero Addr: the kernel chooses
	Metric   int          `json:"metric"`
	Protocol int          `json:"protocol"` // its origin, rtm_protocol: RTPROT_KERNEL, _DHCP, …
}

// ConnectedRoutes returns the connected routes of a device in the main table, and those of known,
// which may be of several devices, that are missing although the device has their address. No route
// is missing if the host has another route to the same network. A device that is down, or in a VRF,
// has no routes.
func ConnectedRoutes(device string, known []ConnectedRoute) (have, missing []ConnectedRoute, err error) {
	l, err := find(device)
	if err != nil {
		return nil, nil, err
	}

	if vrf, err := inVRF(l); vrf || err != nil || l.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, nil, err
	}

	addrs, err := addressesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, nil, err
	}

	routes, err := retry(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, fmt.Errorf("list routes: %w", err)
	}

	for _, a := range addrs {
		p, ok := prefixOf(a.IPNet)
		if !ok || !hasConnectedRoute(a, p) {
			continue
		}

		network := p.Masked()

		toNetwork := func(r ConnectedRoute) bool { return r.Device == device && r.Prefix == network }
		if slices.ContainsFunc(have, toNetwork) || slices.ContainsFunc(missing, toNetwork) {
			continue // another address of the device is in the same network
		}

		byDevice := func(r netlink.Route) bool { return r.LinkIndex == l.Attrs().Index && connects(r, network) }
		if i := slices.IndexFunc(routes, byDevice); i >= 0 {
			have = append(have, connectedRoute(device, network, routes[i]))
			continue
		}

		hasOther := slices.ContainsFunc(routes, func(r netlink.Route) bool {
			to, ok := prefixOf(r.Dst)
			return ok && to == network && !network.Addr().IsLinkLocalUnicast() // each device has fe80::/64
		})
		if i := slices.IndexFunc(known, toNetwork); i >= 0 && !hasOther {
			missing = append(missing, withSource(known[i], p.Addr(), addrs))
		}
	}

	return have, missing, nil
}

// hasConnectedRoute reports whether the kernel adds a route to the network of the address, which is
// prefix: not for a single IPv4 address, and not for an address with a peer.
func hasConnectedRoute(a netlink.Addr, prefix netip.Prefix) bool {
	isSingle4 := prefix.IsSingleIP() && prefix.Addr().Is4()
	hasPeer := a.Peer != nil && !a.Peer.IP.Equal(a.IP)

	return !isSingle4 && !hasPeer
}

// withSource returns the route. If the device no longer has the route's source address, the route gets
// the given source.
func withSource(r ConnectedRoute, source netip.Addr, addresses []netlink.Addr) ConnectedRoute {
	isSource := func(a netlink.Addr) bool {
		p, ok := prefixOf(a.IPNet)
		return ok && p.Addr() == r.Source
	}
	if r.Source.IsValid() && !slices.ContainsFunc(addresses, isSource) {
		r.Source = source
	}

	return r
}

// inVRF reports whether the device belongs to a VRF, whose routes are in a table of their own.
func inVRF(l netlink.Link) (bool, error) {
	if l.Attrs().MasterIndex == 0 {
		return false, nil
	}

	master, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return false, fmt.Errorf("find the master of %s: %w", l.Attrs().Name, err)
	}

	return master.Type() == "vrf", nil
}

// connects reports whether the route leads to the network without a next hop.
func connects(r netlink.Route, network netip.Prefix) bool {
	to, ok := prefixOf(r.Dst)

	return ok && to == network && r.Gw == nil && r.Type == unix.RTN_UNICAST && r.Via == nil &&
		len(r.MultiPath) == 0
}

// connectedRoute returns the kernel's route r to a network of the device.
func connectedRoute(device string, network netip.Prefix, r netlink.Route) ConnectedRoute {
	out := ConnectedRoute{Device: device, Prefix: network, Metric: r.Priority, Protocol: int(r.Protocol)}
	if a, ok := netip.AddrFromSlice(r.Src); ok {
		out.Source = a.Unmap()
	}

	return out
}

// AddConnectedRoute adds the route. It is not an error if the route is there already.
func AddConnectedRoute(r ConnectedRoute) error {
	l, err := find(r.Device)
	if err != nil {
		return err
	}

	route := netlink.Route{
		LinkIndex: l.Attrs().Index,
		Dst:       ipNet(r.Prefix),
		Priority:  r.Metric,
		Protocol:  netlink.RouteProtocol(r.Protocol),
	}
	if r.Prefix.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}

	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}

	add := netlink.RouteAdd
	if r.Prefix.Addr().Is6() {
		add = netlink.RouteAppend // another device may have a route to this network: fe80::/64
	}

	if err := add(&route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s of %s: %w", r.Prefix, r.Device, err)
	}

	return nil
}

// kernelMetric6 is IP6_RT_PRIO_ADDRCONF of net/ipv6.h.
const kernelMetric6 = 256

// MissingConnectedRoutes returns the connected routes that the device lacks, of those that the
// kernel adds with these addresses and with an IPv6 link-local address. Unlike ConnectedRoutes it
// needs no routes from before.
func MissingConnectedRoutes(device string, addresses []netip.Prefix) ([]ConnectedRoute, error) {
	known := []ConnectedRoute{
		{
			Device:   device,
			Prefix:   netip.MustParsePrefix("fe80::/64"),
			Protocol: unix.RTPROT_KERNEL,
			Metric:   kernelMetric6,
		},
	}
	for _, a := range addresses {
		r := ConnectedRoute{
			Device:   device,
			Prefix:   a.Masked(),
			Protocol: unix.RTPROT_KERNEL,
			Metric:   kernelMetric6,
		}
		if a.Addr().Is4() {
			r.Metric, r.Source = 0, a.Addr()
		}

		known = append(known, r)
	}

	_, missing, err := ConnectedRoutes(device, known)

	return missing, err
}

// RestoreConnectedRoutes adds the routes of MissingConnectedRoutes, and returns their number.
func RestoreConnectedRoutes(device string, addresses []netip.Prefix) (int, error) {
	missing, err := MissingConnectedRoutes(device, addresses)
	if err != nil {
		return 0, err
	}

	for _, r := range missing {
		if err := AddConnectedRoute(r); err != nil {
			return 0, err
		}
	}

	return len(missing), nil
}
