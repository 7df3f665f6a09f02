package bpf

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// clsact attaches as an agent's netlink would.
func (n *node) clsact() ClsactFuncs {
	return ClsactFuncs{Attach: n.clsactAttach, Detach: n.clsactDetach}
}

func clsactFilter(ifindex, fd int, name string) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: name, DirectAction: true,
	}
}

func (n *node) clsactAttach(ifindex, fd int, name string) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := n.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return n.FilterReplace(clsactFilter(ifindex, fd, name))
}

func (n *node) clsactDetach(ifindex int, name string) error {
	err := n.FilterDel(clsactFilter(ifindex, 0, name))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
