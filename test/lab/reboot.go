package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Reboot powers the i-th of KubeNodes off and boots it. It kills every process in its network
// namespace, and removes the namespace with all devices, pins and sockets. State on disk stays: the
// database of Open vSwitch with its ports, and the uplink's MAC. Then it recreates the network and
// daemons; the caller must restart other programs. The hypervisor of a VM stays.
func (l *Lab) Reboot(ctx context.Context, i int) error {
	if l.opts.VMs > 0 {
		return l.rebootVM(ctx, l.VM(i))
	}

	n := l.Node(i)

	var mac net.HardwareAddr

	err := netns.Do(n.Netns, func() error {
		link, err := netlink.LinkByName(l.hostDevice())
		if err == nil {
			mac = link.Attrs().HardwareAddr
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("reboot %s: read MAC: %w", n.Name, err)
	}

	if err := l.powerOff(n, l.fabric(), n.Name); err != nil {
		return fmt.Errorf("power %s off: %w", n.Name, err)
	}

	if err := l.boot(ctx, n, mac); err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}

	return nil
}

// powerOff ends the node and removes its NIC, whose other end is the device port of the namespace
// at.
func (l *Lab) powerOff(n *Node, at, port string) error {
	if err := killInside([]string{n.Netns}); err != nil {
		return err
	}

	if err := netns.Delete(n.Netns); err != nil {
		return err
	}
	// The kernel removes the other end of the NIC later than the name of the namespace.
	if err := unplug(at, port); err != nil {
		return err
	}

	files, err := os.ReadDir(n.RunDir)
	if err != nil {
		return err
	}

	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".db") {
			continue
		}

		if err := os.RemoveAll(filepath.Join(n.RunDir, f.Name())); err != nil {
			return err
		}
	}

	return os.RemoveAll(n.PinDir)
}

func (l *Lab) boot(ctx context.Context, n *Node, mac net.HardwareAddr) error {
	for _, dir := range []string{n.PinDir, n.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	if err := l.makeNodeNetwork(n); err != nil {
		return err
	}

	if err := l.setMAC(n, mac); err != nil {
		return err
	}

	if l.opts.Blank {
		return nil
	}

	if err := l.serve(ctx, n.Netns, n.RunDir, "db.sock"); err != nil {
		return err
	}

	if err := l.startVswitchd(n); err != nil {
		return err
	}

	return l.startOVNController(n)
}

// setMAC sets the MAC of the node's uplink to the former one.
func (l *Lab) setMAC(n *Node, mac net.HardwareAddr) error {
	return netns.Do(n.Netns, func() error {
		link, err := netlink.LinkByName(l.hostDevice())
		if err != nil {
			return err
		}

		return netlink.LinkSetHardwareAddr(link, mac)
	})
}

// unplug removes the device port of the namespace at, if it exists. A NIC of this machine goes back to
// the caller's namespace.
func unplug(at, port string) error {
	own := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())

	return netns.Do(at, func() error {
		link, err := netlink.LinkByName(port)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}

		if err != nil {
			return err
		}

		if link.Type() == "device" {
			return moveDevice(link, own)
		}

		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete link %s: %w", port, err)
		}

		return nil
	})
}
