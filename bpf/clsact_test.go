package bpf

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// clsact attaches like an agent through netlink.
func (n *node) clsact() ClsactFuncs {
	return ClsactFuncs{Attach: n.clsactAttach, Detach: n.clsactDetach, Attached: n.clsactAttached}
}

// clsactFilter is the agent's filter on a hook. Priority 2 is for tests.
func clsactFilter(ifindex, fd int, name string, egress bool) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: clsactParent(egress), Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: name, DirectAction: true,
	}
}

func clsactParent(egress bool) uint32 {
	if egress {
		return netlink.HANDLE_MIN_EGRESS
	}

	return netlink.HANDLE_MIN_INGRESS
}

func (n *node) clsactAttach(ifindex, fd int, name string, egress bool) error {
	if err := n.clsactQdisc(ifindex); err != nil {
		return err
	}

	return n.FilterReplace(clsactFilter(ifindex, fd, name, egress))
}

func (n *node) clsactQdisc(ifindex int) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := n.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}

	return nil
}

func (n *node) clsactDetach(ifindex int, name string, egress bool) error {
	err := n.FilterDel(clsactFilter(ifindex, 0, name, egress))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}

	return err
}

func (n *node) clsactAttached(ifindex int, name string, egress bool) bool {
	l, err := n.LinkByIndex(ifindex)
	if err != nil {
		return false
	}

	filters, err := n.FilterList(l, clsactParent(egress))
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == name {
			return err == nil
		}
	}

	return false
}
