package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Neighbour is a host on the network of a device.
type Neighbour struct {
	Device string
	Addr   netip.Addr
}

// ethernetLen is the length of an Ethernet address.
const ethernetLen = 6

// NeighbourTowards returns the neighbour to which the kernel sends packets for the address: the
// next hop of its route, or the address itself.
func NeighbourTowards(a netip.Addr) (Neighbour, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("the kernel returned none")
	}

	if err != nil {
		return Neighbour{}, fmt.Errorf("find route to %s: %w", a, err)
	}

	device := nameOf(routes[0].LinkIndex)
	if device == "" {
		return Neighbour{}, fmt.Errorf("find route to %s: device %d is gone", a, routes[0].LinkIndex)
	}

	if hop, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		a = hop.Unmap()
	}

	return Neighbour{device, a}, nil
}

// NeighbourMAC returns the link-layer address that the kernel has for the neighbour, on its device
// or, if that has none, on the first of devices that has one. It returns nil without an address.
// confirmed reports whether the entry is permanent, or the neighbour was heard within the kernel's
// reachable time, about 30 s.
func NeighbourMAC(n Neighbour, devices ...string) (mac net.HardwareAddr, confirmed bool, err error) {
	list, err := retry(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, family(n.Addr)) })
	if err != nil {
		return nil, false, fmt.Errorf("list neighbours: %w", err)
	}

	const (
		heard  = netlink.NUD_REACHABLE | netlink.NUD_PERMANENT
		usable = heard | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE
	)

	for _, device := range append([]string{n.Device}, devices...) {
		for _, e := range list {
			a, ok := netip.AddrFromSlice(e.IP)
			hasMAC := e.State&usable != 0 && len(e.HardwareAddr) == ethernetLen

			if ok && a.Unmap() == n.Addr.WithZone("") && hasMAC && nameOf(e.LinkIndex) == device {
				return e.HardwareAddr, e.State&heard != 0, nil
			}
		}
	}

	return nil, false, nil
}

// ProbeNeighbours makes the kernel resolve the link-layer addresses of the neighbours, by ARP or
// neighbour discovery. It probes a known entry like a stale one in use: packets continue to use it.
// It writes no link-layer address. Permanent entries, and entries in resolution, stay as they are.
func ProbeNeighbours(neighbours []Neighbour) error {
	entries := map[Neighbour]netlink.Neigh{}
	indexes := map[string]int{} // by device

	for _, n := range neighbours {
		if _, seen := indexes[n.Device]; seen {
			continue
		}

		l, err := find(n.Device)
		if err != nil {
			return err
		}

		index := l.Attrs().Index
		indexes[n.Device] = index

		read := func() ([]netlink.Neigh, error) { return netlink.NeighList(index, netlink.FAMILY_ALL) }

		list, err := retry(read)
		if err != nil {
			return fmt.Errorf("list neighbours of %s: %w", n.Device, err)
		}

		for _, e := range list {
			if a, ok := netip.AddrFromSlice(e.IP); ok {
				entries[Neighbour{n.Device, a.Unmap()}] = e
			}
		}
	}

	var errs []error

	for _, n := range neighbours {
		n.Addr = n.Addr.WithZone("")

		entry, known := entries[n]
		neigh := netlink.Neigh{LinkIndex: indexes[n.Device], IP: n.Addr.AsSlice(), Family: family(n.Addr)}

		if err := probe(neigh, entry.State, known); err != nil {
			errs = append(errs, fmt.Errorf("probe neighbour %s of %s: %w", n.Addr, n.Device, err))
		}
	}

	return errors.Join(errs...)
}

// probe makes the kernel resolve or confirm one neighbour. state is that of its entry, if it is
// known. A request with NTF_USE starts a resolution, and one with the state NUD_PROBE confirms an
// entry.
func probe(n netlink.Neigh, state int, known bool) error {
	const settled = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY

	var err error

	switch {
	case !known:
		n.Flags = netlink.NTF_USE

		err = netlink.NeighAdd(&n)
		if errors.Is(err, unix.EEXIST) { // the kernel has started the resolution
			return nil
		}
	case state == netlink.NUD_NONE || state == netlink.NUD_FAILED:
		n.Flags = netlink.NTF_USE
		err = netlink.NeighAppend(&n) // not NeighSet, which overwrites
	case state&settled != 0:
		n.State = netlink.NUD_PROBE

		err = netlink.NeighAppend(&n)
		if errors.Is(err, unix.EINVAL) { // the resolution failed meanwhile; the next probe restarts it
			return nil
		}
	}

	return err
}
