package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// pairsEnv is the number of pairs of virtio NICs that test/vm/run has given this machine.
const pairsEnv = "VM_NICS"

// pairTimeout limits the wait for a pair. It was part of a former lab or VM, and the kernel returns
// it some time after the namespaces' names are gone.
const pairTimeout = 30 * time.Second

// The ends of a pair.
const (
	nicEnd = 0
	tapEnd = 1
)

// pairMAC returns the permanent MAC of one end of a pair, as test/vm/run sets it.
func pairMAC(pair, end int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0, 0, byte(pair), byte(end)}
}

// hasPair reports whether the NIC of the VM is one of this machine's virtio NICs, whose other end is the
// hypervisor's. Such a NIC drops frames for MAC addresses and VLANs that its owner has not registered,
// as the NIC of a real VM does. Veths do not. The first VMs have pairs as long as there are any.
func (v *VM) hasPair() (bool, error) {
	text := os.Getenv(pairsEnv)
	if text == "" {
		return false, nil
	}

	pairs, err := strconv.Atoi(text)
	if err != nil {
		return false, fmt.Errorf("parse %s: %w", pairsEnv, err)
	}

	return v.Index >= 1 && v.Index <= pairs, nil
}

// movePair moves the ends of the VM's pair from the current namespace to the VM and its hypervisor.
func movePair(ctx context.Context, v *VM) error {
	nic, err := awaitDevice(ctx, pairMAC(v.Index, nicEnd))
	if err != nil {
		return err
	}

	tap, err := awaitDevice(ctx, pairMAC(v.Index, tapEnd))
	if err != nil {
		return err
	}

	// A hypervisor has a device eth0, so a tap needs its name before.
	if err := netlink.LinkSetName(tap, v.tap()); err != nil {
		return fmt.Errorf("rename link %s: %w", tap.Attrs().Name, err)
	}

	if err := moveDevice(tap, netns.Path(v.Hypervisor.Netns)); err != nil {
		return err
	}

	if err := moveDevice(nic, netns.Path(v.Netns)); err != nil {
		return err
	}

	err = netns.Do(v.Hypervisor.Netns, func() error { return netlink.LinkSetMTU(tap, VMMTU) })
	if err != nil {
		return fmt.Errorf("set MTU of %s: %w", v.tap(), err)
	}

	return netns.Do(v.Netns, func() error { return v.resetNIC(nic) })
}

// resetNIC gives a NIC in the current namespace the settings of a booting VM.
func (v *VM) resetNIC(nic netlink.Link) error {
	err := errors.Join(
		netlink.LinkSetName(nic, vmDevice), netlink.LinkSetHardwareAddr(nic, v.MAC),
		netlink.LinkSetMTU(nic, VMMTU), netlink.SetPromiscOff(nic),
	)
	if err != nil {
		return fmt.Errorf("reset NIC of %s: %w", v.Name, err)
	}

	return nil
}

// awaitDevice returns the device of the current namespace with this permanent MAC.
func awaitDevice(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, pairTimeout)
	defer cancel()

	for {
		links, err := netlink.LinkList()
		if err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}

		is := func(l netlink.Link) bool { return slices.Equal(l.Attrs().PermHWAddr, mac) }
		if i := slices.IndexFunc(links, is); i >= 0 {
			return links[i], nil
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("find NIC %s of test/vm/run: %w", mac, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// moveDevice moves a device of the current namespace to another one. The device goes down.
func moveDevice(l netlink.Link, namespace string) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()

	if err := netlink.LinkSetNsFd(l, int(ns.Fd())); err != nil {
		return fmt.Errorf("move link %s: %w", l.Attrs().Name, err)
	}

	return nil
}
