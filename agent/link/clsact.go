package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AttachClsact attaches a program of type sched_cls, given by its descriptor,
// to the device's ingress, as a filter of the given name. A filter of that
// name is replaced; filters of others keep their place. The filter lives until
// the device goes or DetachClsact is called.
func AttachClsact(ifindex, progFD int, name string) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("attach %s: device %d: %w", name, ifindex, err)
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("attach %s: add clsact to %s: %w", name, l.Attrs().Name, err)
	}
	have, err := ingressFilters(l)
	if err != nil {
		return fmt.Errorf("attach %s: %w", name, err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS,
			Handle: 1, Protocol: unix.ETH_P_ALL, Priority: freePriority(have),
		},
		Fd: progFD, Name: name, DirectAction: true,
	}
	if old := filterNamed(have, name); old != nil {
		filter.Priority, filter.Handle = old.Priority, old.Handle
	}
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, l.Attrs().Name, err)
	}
	return nil
}

// DetachClsact removes the filter of that name from the device's ingress. No
// such device or filter is no error.
func DetachClsact(ifindex int, name string) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil
	}
	have, err := ingressFilters(l)
	if err != nil {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	old := filterNamed(have, name)
	if old == nil {
		return nil
	}
	if err := netlink.FilterDel(old); err != nil {
		return fmt.Errorf("detach %s from %s: %w", name, l.Attrs().Name, err)
	}
	return nil
}

// ClsactAttached reports whether the device's ingress has a filter of the name.
func ClsactAttached(ifindex int, name string) bool {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return false
	}
	have, err := ingressFilters(l)
	return err == nil && filterNamed(have, name) != nil
}

func ingressFilters(l netlink.Link) ([]netlink.Filter, error) {
	out, err := retry(func() ([]netlink.Filter, error) { return netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS) })
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
	}
	return out, nil
}

func filterNamed(filters []netlink.Filter, name string) *netlink.BpfFilter {
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == name {
			return b
		}
	}
	return nil
}

// freePriority returns the lowest priority that no filter has.
func freePriority(filters []netlink.Filter) uint16 {
	used := map[uint16]bool{}
	for _, f := range filters {
		used[f.Attrs().Priority] = true
	}
	p := uint16(1)
	for used[p] {
		p++
	}
	return p
}
