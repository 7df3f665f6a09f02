package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Address is one address of one device.
type Address struct {
	Prefix    netip.Prefix // the address with its prefix length
	Device    string
	Index     int
	LinkLocal bool // of scope link
	Secondary bool // not the address to use: secondary, temporary, deprecated, tentative or duplicate
	Dynamic   bool // it expires unless renewed, by DHCP or router advertisements
	Duplicate bool // duplicate address detection has found another host with it
}

// Addresses returns all addresses of the namespace except loopback's own, sorted by device and, per
// device, in the kernel's order.
func Addresses() ([]Address, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}

	addrs, err := retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}

	const secondary = unix.IFA_F_SECONDARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

	var out []Address

	for _, a := range addrs {
		p, ok := prefixOf(a.IPNet)
		if !ok || p.Addr().IsLoopback() {
			continue
		}

		out = append(out, Address{
			Prefix:    p,
			Device:    names[a.LinkIndex],
			Index:     a.LinkIndex,
			LinkLocal: a.Scope == unix.RT_SCOPE_LINK || p.Addr().IsLinkLocalUnicast(),
			Secondary: a.Flags&secondary != 0,
			Dynamic:   a.Flags&unix.IFA_F_PERMANENT == 0,
			Duplicate: a.Flags&unix.IFA_F_DADFAILED != 0,
		})
	}

	slices.SortStableFunc(out, func(a, b Address) int { return a.Index - b.Index })

	return out, nil
}

// SyncAddresses sets the device's addresses to exactly want, except that it keeps link-local
// addresses. It adds IPv6 addresses without duplicate address detection.
func SyncAddresses(device string, want []netip.Prefix) error {
	l, err := find(device)
	if err != nil {
		return err
	}

	have, err := addressesOf(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	found := map[netip.Prefix]bool{}

	for _, a := range have {
		p, ok := prefixOf(a.IPNet)
		found[p] = true

		if !ok || p.Addr().IsLinkLocalUnicast() || slices.Contains(want, p) {
			continue
		}

		if err := netlink.AddrDel(l, &a); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s of %s: %w", p, device, err)
		}
	}

	for _, p := range want {
		if found[p] {
			continue
		}

		if err := netlink.AddrReplace(l, newAddr(p)); err != nil {
			return fmt.Errorf("add address %s to %s: %w", p, device, err)
		}
	}

	return nil
}

// addressesOf returns the addresses of a device.
func addressesOf(l netlink.Link, family int) ([]netlink.Addr, error) {
	list, err := retry(func() ([]netlink.Addr, error) { return netlink.AddrList(l, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
	}

	return list, nil
}

// newAddr returns an address to add to a device.
func newAddr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // OVN ensures that the address is unique
	}

	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf returns an address of netlink with its prefix length, or false for a missing one.
func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}

	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}

	bits, _ := n.Mask.Size()

	return netip.PrefixFrom(a.Unmap(), bits), true
}

// retry repeats a netlink dump that a concurrent change has interrupted. If all attempts were
// interrupted, it returns the last, incomplete list with netlink.ErrDumpInterrupted.
func retry[T any](list func() ([]T, error)) ([]T, error) {
	const retries = 10
	for range retries {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}

	return list()
}
