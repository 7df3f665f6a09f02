package link

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ClsactFilter is a BPF filter of the agent on a device's clsact qdisc.
type ClsactFilter struct {
	Name    string
	Ifindex int
	Device  string
	Egress  bool
	ProgID  int
}

// AttachClsact attaches a program of type sched_cls, given by its descriptor, to the device's
// ingress or egress, as a filter of the given name in direct-action mode. It replaces a filter of
// that name in place, so the hook is never empty. Foreign filters keep their place. The filter
// lives until the device is deleted or DetachClsact is called.
func AttachClsact(ifindex, progFD int, name string, egress bool) error {
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

	have, err := clsactFilters(l, egress)
	if err != nil {
		return fmt.Errorf("attach %s: %w", name, err)
	}

	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: clsactParent(egress),
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

// DetachClsact removes every filter of that name from the device's ingress or egress. Other
// filters and the qdisc stay. A missing device or filter is not an error.
func DetachClsact(ifindex int, name string, egress bool) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil // the device is gone, with its filters
	}

	for {
		have, err := clsactFilters(l, egress)
		if err != nil {
			return fmt.Errorf("detach %s: %w", name, err)
		}

		old := filterNamed(have, name)
		if old == nil {
			return nil
		}

		if err := netlink.FilterDel(old); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("detach %s from %s: %w", name, l.Attrs().Name, err)
		}
	}
}

// ClsactAttached reports whether the device's ingress or egress has a filter of the name.
func ClsactAttached(ifindex int, name string, egress bool) bool {
	_, attached := ClsactPlace(ifindex, name, egress)
	return attached
}

// ClsactPlace reports whether the filter is attached, and the number of foreign priorities before
// it.
func ClsactPlace(ifindex int, name string, egress bool) (ahead int, attached bool) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return 0, false
	}

	have, err := clsactFilters(l, egress)
	own := filterNamed(have, name)

	if err != nil || own == nil {
		return 0, false
	}

	before := map[uint16]bool{} // a classifier lists itself in addition to its filters

	for _, f := range have {
		if p := f.Attrs().Priority; p < own.Priority {
			before[p] = true
		}
	}

	return len(before), true
}

// ClsactFilters returns the filters whose names match, on all devices of the namespace, in both
// directions, sorted by interface index, ingress first. It includes orphans on devices that the
// caller no longer uses.
func ClsactFilters(match func(name string) bool) ([]ClsactFilter, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	var out []ClsactFilter

	for _, l := range links {
		for _, egress := range []bool{false, true} {
			have, err := clsactFilters(l, egress)
			if err != nil {
				if _, gone := netlink.LinkByIndex(l.Attrs().Index); gone != nil {
					break // the device was deleted meanwhile
				}

				return nil, err
			}

			for _, f := range have {
				if b, ok := f.(*netlink.BpfFilter); ok && match(b.Name) {
					out = append(out, ClsactFilter{
						Name:    b.Name,
						Ifindex: l.Attrs().Index,
						Device:  l.Attrs().Name,
						Egress:  egress,
						ProgID:  b.Id,
					})
				}
			}
		}
	}

	slices.SortStableFunc(out, func(a, b ClsactFilter) int { return cmp.Compare(a.Ifindex, b.Ifindex) })

	return out, nil
}

// clsactParent returns the handle of a direction.
func clsactParent(egress bool) uint32 {
	if egress {
		return netlink.HANDLE_MIN_EGRESS
	}

	return netlink.HANDLE_MIN_INGRESS
}

// clsactFilters returns none for a device without clsact. For a missing parent, the kernel lists
// the filters of another parent or none, depending on the qdiscs. So clsactFilters checks the
// parent of each.
func clsactFilters(l netlink.Link, egress bool) ([]netlink.Filter, error) {
	parent := clsactParent(egress)

	all, err := retry(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
	if err != nil && !errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
	}

	return slices.DeleteFunc(all, func(f netlink.Filter) bool { return f.Attrs().Parent != parent }), nil
}

// filterNamed returns the BPF filter of a name, or nil.
func filterNamed(filters []netlink.Filter, name string) *netlink.BpfFilter {
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == name {
			return b
		}
	}

	return nil
}

// freePriority returns the lowest unused priority.
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
