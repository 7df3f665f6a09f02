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

// Reboot powers the i-th node off and boots it. It kills every process in its network namespace,
// and removes the namespace with all devices, pins and sockets. State on disk stays: the database
// of Open vSwitch with its ports, and the uplink's MAC. Then it recreates the network and daemons;
// the caller must restart other programs.
func (l *Lab) Reboot(ctx context.Context, i int) error {
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
	if err := l.powerOff(n); err != nil {
		return fmt.Errorf("power %s off: %w", n.Name, err)
	}
	if err := l.boot(ctx, n, mac); err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}
	return nil
}

func (l *Lab) powerOff(n *Node) error {
	if err := killInside([]string{n.Netns}); err != nil {
		return err
	}
	if err := netns.Delete(n.Netns); err != nil {
		return err
	}
	// The kernel removes the uplink's end in the fabric later than the name of the namespace.
	if err := l.unplug(n.Name); err != nil {
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

// unplug removes a port of the fabric's bridge, if it exists.
func (l *Lab) unplug(port string) error {
	return netns.Do(l.fabric(), func() error {
		link, err := netlink.LinkByName(port)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete link %s: %w", port, err)
		}
		return nil
	})
}
