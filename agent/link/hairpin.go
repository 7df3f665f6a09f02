package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hairpinProtocol marks the agent's routes on a device that also has foreign ones (rtm_protocol).
const hairpinProtocol = 111

// Hairpin is the host's configuration on the gateway bridge for packets between the host and OVN's
// gateway router, which has the same address as the host. In addition to the bridge's own addresses
// and routes, the host gets masquerade addresses, permanent neighbours that stand for OVN, and
// routes through them.
type Hairpin struct {
	Addresses  []netip.Addr // the host's; the kernel never selects them as source by itself
	Neighbours []netip.Addr // permanent, all with MAC
	MAC        net.HardwareAddr
	Routes     []Route
	Keep       []netip.Prefix // an existing route to one of these is not removed, even if Routes lacks it
}

// Route is a static route of a Hairpin.
type Route struct {
	Prefix  netip.Prefix
	NextHop netip.Addr // the zero Addr: the destinations are neighbours on the device
	Source  netip.Addr // the zero Addr: the kernel chooses
	MTU     int        // 0: the device's MTU
}

// SyncHairpin applies h to the device. It removes routes of an earlier call that h lacks. Foreign
// configuration and earlier addresses and neighbours stay.
func SyncHairpin(device string, h Hairpin) error {
	l, err := find(device)
	if err != nil {
		return err
	}

	for _, a := range h.Addresses {
		if err := addUnselected(l, a); err != nil {
			return err
		}
	}

	for _, a := range h.Neighbours {
		if err := putNeighbour(l, a, h.MAC); err != nil {
			return err
		}
	}

	have, err := routesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	wanted := map[netip.Prefix]bool{}
	for _, p := range h.Keep {
		wanted[p] = true
	}

	for _, r := range h.Routes {
		wanted[r.Prefix] = true
		if err := replaceRoute(l, have, r); err != nil {
			return err
		}
	}

	return pruneRoutes(l, wanted)
}

// RemoveHairpin undoes SyncHairpin. A missing device is not an error.
func RemoveHairpin(device string, h Hairpin) error {
	l, err := find(device)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	errs := []error{pruneRoutes(l, nil)}
	for _, a := range h.Neighbours {
		n := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.AsSlice(), Family: family(a)}
		if err := netlink.NeighDel(n); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("delete neighbour %s of %s: %w", a, device, err))
		}
	}

	for _, a := range h.Addresses {
		err := netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(host(a))})
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("delete address %s of %s: %w", a, device, err))
		}
	}

	if _, err := find(device); errors.Is(err, ErrNotFound) {
		return nil // the device was deleted meanwhile
	}

	return errors.Join(errs...)
}

// host returns the prefix that has only the address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// family returns netlink's number of the address's family.
func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}

	return netlink.FAMILY_V6
}

// forever is the lifetime of an address that does not expire (INFINITY_LIFE_TIME of
// net/ipv4/devinet.c).
const forever = 0xffffffff

// addUnselected adds an address that the kernel never selects as a source by itself. It is valid
// forever, but its preferred lifetime is over. IPv4 ignores the lifetime. If a route names no source
// and its next hop is in no network of the device, IPv4 selects the first address of the device, unless
// it has scope host. So an IPv4 address gets this scope. An address of a former release, which has
// another scope, is deleted first, and with it the routes with this source.
func addUnselected(l netlink.Link, a netip.Addr) error {
	addr := &netlink.Addr{IPNet: ipNet(host(a)), PreferedLft: 0, ValidLft: forever, Flags: unix.IFA_F_NODAD}
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_HOST
	}

	have, err := addressesOf(l, family(a))
	if err != nil {
		return err
	}

	for _, h := range have {
		if p, ok := prefixOf(h.IPNet); !ok || p != host(a) {
			continue
		}

		if h.Scope == addr.Scope && h.Flags&unix.IFA_F_DEPRECATED != 0 {
			return nil
		}

		if h.Scope != addr.Scope { // it cannot be changed
			if err := netlink.AddrDel(l, &h); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
				return fmt.Errorf("delete address %s of %s: %w", a, l.Attrs().Name, err)
			}
		}
	}

	if err := netlink.AddrReplace(l, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", a, l.Attrs().Name, err)
	}

	return nil
}

// replaceRoute makes the device have the route. have are its present routes.
func replaceRoute(l netlink.Link, have []netlink.Route, r Route) error {
	route := netlink.Route{
		LinkIndex: l.Attrs().Index,
		Dst:       ipNet(r.Prefix),
		Protocol:  hairpinProtocol,
		MTU:       r.MTU,
	}
	if r.NextHop.IsValid() {
		route.Gw = r.NextHop.AsSlice()
		route.SetFlag(netlink.FLAG_ONLINK)
	} else {
		route.Scope = netlink.SCOPE_LINK
	}

	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}

	if err := putRoute(have, route); err != nil {
		return fmt.Errorf("add route %s via %s of %s: %w", r.Prefix, r.NextHop, l.Attrs().Name, err)
	}

	return nil
}

// pruneRoutes deletes the device's routes of hairpinProtocol to prefixes that are not wanted.
func pruneRoutes(l netlink.Link, wanted map[netip.Prefix]bool) error {
	have, err := routesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	for _, r := range have {
		p, hasPrefix := prefixOf(r.Dst)
		if r.Protocol != hairpinProtocol || hasPrefix && wanted[p] {
			continue
		}

		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("delete route %s of %s: %w", r.Dst, l.Attrs().Name, err)
		}
	}

	return nil
}
