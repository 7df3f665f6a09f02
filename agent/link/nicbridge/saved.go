package nicbridge

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SavedDevice is a device's configuration before a temporary change. It is independent of moves:
// the agent saves the devices of a node that it takes over from ovn-kubernetes, and restores them
// when it leaves.
type SavedDevice struct {
	Device  string
	Whole   bool              // Restore removes addresses and routes that were added since
	Had     Config            // without Rules
	Sysctls map[string]string // by the names of readSysctls
}

// ReadDevice reads the device: its addresses, routes, permanent neighbours and settings, for a
// Whole SavedDevice. If only is not nil, the device has other users: ReadDevice reads the
// addresses, routes (by destination) and neighbours for which only returns true, and the setting
// rp_filter. It changes nothing.
func ReadDevice(name string, only func(netip.Prefix) bool) (SavedDevice, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return SavedDevice{}, fmt.Errorf("read device %s: %w", name, err)
	}

	k := SavedDevice{Device: name, Whole: only == nil, Sysctls: readSysctls(name)}
	if k.Had, err = readConfig(name, l.Attrs().Index); err != nil {
		return k, err
	}

	k.Had.Rules = nil

	k.Had.Neighbours = slices.DeleteFunc(k.Had.Neighbours,
		func(msg []byte) bool { return neighbourState(msg)&unix.NUD_PERMANENT == 0 })
	if k.Whole {
		return k, nil
	}

	k.Sysctls = map[string]string{rpFilter: k.Sysctls[rpFilter]}
	k.Had.Text = nil

	k.Had.Addresses = slices.DeleteFunc(k.Had.Addresses, func(msg []byte) bool {
		a, err := parseAddr(msg)
		return err != nil || !only(netip.PrefixFrom(a.key.Addr(), a.key.Addr().BitLen()))
	})

	k.Had.Routes = slices.DeleteFunc(k.Had.Routes, func(w Route) bool {
		r, err := parseRoute(w.Message)
		return err != nil || !only(r.dst)
	})

	k.Had.Neighbours = slices.DeleteFunc(k.Had.Neighbours, func(msg []byte) bool {
		a, ok := neighbourOn(msg, l.Attrs().Index)
		return !ok || !only(netip.PrefixFrom(a, a.BitLen()))
	})

	return k, nil
}

const rpFilter = "ipv4/rp_filter"

// Restore restores the device's configuration as far as it can, and returns all errors joined. A
// missing device is an error.
func (k SavedDevice) Restore() error {
	l, err := netlink.LinkByName(k.Device)
	if err != nil {
		return fmt.Errorf("read device %s: %w", k.Device, err)
	}

	index := l.Attrs().Index

	errs := []error{k.restoreAddresses(index), k.restoreRoutes(index)}
	for _, msg := range k.Had.Neighbours {
		again, err := retargetNeigh(msg, index)
		if err == nil {
			err = send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, again)
		}

		errs = append(errs, err)
	}

	for _, key := range differingSettings(k.Sysctls, readSysctls(k.Device)) {
		errs = append(errs, writeSysctl(k.Device, key, k.Sysctls[key]))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restore device %s: %w", k.Device, err)
	}

	return nil
}

// restoreAddresses adds missing addresses, and removes additions from a Whole device.
func (k SavedDevice) restoreAddresses(index int) error {
	have, err := addrsOf(index)
	if err != nil {
		return err
	}

	var errs []error

	for _, msg := range inOrder(k.Had.Addresses) {
		if sameLife(msg, lookup(msg, have)) {
			continue
		}

		again, err := retargetAddr(msg, k.Device, k.Device, index, true)
		if err == nil {
			err = send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, again)
		}

		errs = append(errs, err)
	}

	for _, msg := range have {
		a, err := parseAddr(msg)
		if err != nil || !k.Whole || lookup(msg, k.Had.Addresses) != nil {
			continue
		}

		if a.is6() && a.key.Addr().IsLinkLocalUnicast() { // the kernel generates it
			continue
		}

		errs = append(errs, send(unix.RTM_DELADDR, 0, msg))
	}

	return errors.Join(errs...)
}

// sameLife reports whether the saved and the present message of an address have the same preferred
// and valid lifetime, so that the address need not be restored. Lifetimes that expire count as the
// same. present is nil if the address is missing.
func sameLife(saved, present []byte) bool {
	before, err := parseAddr(saved)
	if err != nil || present == nil {
		return false
	}

	now, err := parseAddr(present)
	if err != nil {
		return false
	}

	const preferredAndValid = 8 // bytes
	if len(before.life) < preferredAndValid || len(now.life) < preferredAndValid {
		return false
	}

	return before.dynamic() && now.dynamic() ||
		bytes.Equal(before.life[:preferredAndValid], now.life[:preferredAndValid])
}

// restoreRoutes adds missing routes, and removes additions from a Whole device. It adds routes
// without a next hop first, because others depend on them.
func (k SavedDevice) restoreRoutes(index int) error {
	all, err := routes()
	if err != nil {
		return err
	}

	sameAs := func(r route) func(route) bool { return func(o route) bool { return key(o) == key(r) } }

	var had []route

	for _, w := range k.Had.Routes {
		r, err := parseRoute(w.Message)
		if err != nil {
			return err
		}

		had = append(had, r)
	}

	var errs []error

	for _, withGateway := range []bool{false, true} {
		for _, r := range had {
			if r.hasGateway() != withGateway || r.advertised() || slices.ContainsFunc(all, sameAs(r)) {
				continue
			}

			msg, err := retargetRoute(r.msg, index, index)
			if err == nil {
				err = send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, msg)
			}

			errs = append(errs, err)
		}
	}

	for _, r := range all {
		isAddition := r.by(index) && !r.automatic() && r.protocol != unix.RTPROT_KERNEL &&
			!slices.ContainsFunc(had, sameAs(r))
		if !k.Whole || !isAddition {
			continue
		}

		msg, err := retargetRoute(r.msg, index, index)
		if err == nil {
			err = send(unix.RTM_DELROUTE, 0, msg)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}
