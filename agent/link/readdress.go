package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
)

// ReaddressPod changes the MAC address, addresses and default routes of a pod's interface to those
// of p. To change the MAC address it sets the interface down for a moment. Otherwise the IPv6
// link-local address would still be derived from the old MAC, and OVN drops neighbour discovery
// from it.
func ReaddressPod(p PodInterface) error {
	return InNetns(p.Netns, func() error {
		l, err := find(p.Name)
		if err != nil {
			return err
		}

		if !slices.Equal(l.Attrs().HardwareAddr, p.MAC) {
			if err := netlink.LinkSetDown(l); err != nil {
				return fmt.Errorf("set %s in %s down: %w", p.Name, p.Netns, err)
			}

			if err := netlink.LinkSetHardwareAddr(l, p.MAC); err != nil {
				return fmt.Errorf("set address %s of %s in %s: %w", p.MAC, p.Name, p.Netns, err)
			}
		}

		if err := deleteDefaults(l, p.Gateways); err != nil {
			return err
		}

		return configurePod(p)
	})
}

// deleteDefaults removes the device's default routes, except those through the gateways.
func deleteDefaults(l netlink.Link, keep []netip.Addr) error {
	routes, err := routesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	for _, r := range routes {
		gw, hasGateway := netip.AddrFromSlice(r.Gw)
		to, hasPrefix := prefixOf(r.Dst)

		isDefault := hasGateway && (!hasPrefix || to.Bits() == 0)
		if !isDefault || slices.Contains(keep, gw.Unmap()) {
			continue
		}

		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("delete default route via %s of %s: %w", gw, l.Attrs().Name, err)
		}
	}

	return nil
}
