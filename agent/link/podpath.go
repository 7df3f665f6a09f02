package link

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PodPath is the direct path between the host and a pod whose packets do not pass a switch of the
// host. Neither side can use ARP, because a program sends the replies to the wire: the host has a
// route and a permanent neighbour entry for the pod, and the pod has permanent entries for its
// gateways.
type PodPath struct {
	HostName  string // of the veth pair, as in PodInterface
	Netns     string
	Name      string
	MAC       net.HardwareAddr // of the pod
	Addresses []netip.Addr
	Gateways  map[netip.Addr]net.HardwareAddr // of the pod; entries without a MAC address are left to ARP
}

// SyncPodPath creates the missing parts of the path.
func SyncPodPath(p PodPath) error { return p.visit(setNeighbour, setHostRoute) }

// CheckPodPath returns an error that names a missing part of the path.
func CheckPodPath(p PodPath) error { return p.visit(checkNeighbour, checkHostRoute) }

// visit calls the functions for all neighbour entries and routes of the path, in the namespace of
// each, until one of them fails. IPv6 addresses have no part at the host's side, where
// SyncPodInterface disables IPv6.
func (p PodPath) visit(
	neighbour func(l netlink.Link, a netip.Addr, mac net.HardwareAddr) error,
	route func(l netlink.Link, a netip.Addr) error,
) error {
	host, err := find(p.HostName)
	if err != nil {
		return err
	}

	for _, a := range p.Addresses {
		if !a.Is4() {
			continue
		}

		if err := neighbour(host, a, p.MAC); err != nil {
			return err
		}

		if err := route(host, a); err != nil {
			return err
		}
	}

	return InNetns(p.Netns, func() error {
		pod, err := find(p.Name)
		if err != nil {
			return err
		}

		for gateway, mac := range p.Gateways {
			if len(mac) == 0 {
				continue
			}

			if err := neighbour(pod, gateway, mac); err != nil {
				return err
			}
		}

		return nil
	})
}

// setNeighbour adds the permanent entry, unless the device has it.
func setNeighbour(l netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
	if checkNeighbour(l, a, mac) == nil {
		return nil
	}

	return putNeighbour(l, a, mac)
}

// putNeighbour adds or replaces the permanent entry.
func putNeighbour(l netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
	n := &netlink.Neigh{
		LinkIndex:    l.Attrs().Index,
		Family:       family(a),
		IP:           a.AsSlice(),
		HardwareAddr: mac,
		State:        netlink.NUD_PERMANENT,
	}
	if err := netlink.NeighSet(n); err != nil {
		return fmt.Errorf("add neighbour %s to %s: %w", a, l.Attrs().Name, err)
	}

	return nil
}

// checkNeighbour returns an error unless the device has the permanent entry.
func checkNeighbour(l netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
	name := l.Attrs().Name

	list, err := retry(func() ([]netlink.Neigh, error) { return netlink.NeighList(l.Attrs().Index, family(a)) })
	if err != nil {
		return fmt.Errorf("list neighbours of %s: %w", name, err)
	}

	for _, n := range list {
		addr, ok := netip.AddrFromSlice(n.IP)
		if ok && addr.Unmap() == a && n.State == netlink.NUD_PERMANENT && slices.Equal(n.HardwareAddr, mac) {
			return nil
		}
	}

	return fmt.Errorf("device %s: no permanent neighbour %s with %s", name, a, mac)
}

// hostRoute is the route from the host to a pod.
func hostRoute(l netlink.Link, a netip.Addr) netlink.Route {
	return netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(host(a)),
		Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC,
	}
}

// setHostRoute adds the route, unless the device has it.
func setHostRoute(l netlink.Link, a netip.Addr) error {
	if checkHostRoute(l, a) == nil {
		return nil
	}

	r := hostRoute(l, a)
	if err := netlink.RouteReplace(&r); err != nil {
		return fmt.Errorf("add route %s to %s: %w", a, l.Attrs().Name, err)
	}

	return nil
}

// checkHostRoute returns an error unless the device has the route.
func checkHostRoute(l netlink.Link, a netip.Addr) error {
	want := hostRoute(l, a)

	have, err := routesOf(l, family(a))
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(have, func(r netlink.Route) bool { return sameRoute(r, want) }) {
		return fmt.Errorf("device %s: no route to %s", l.Attrs().Name, a)
	}

	return nil
}
