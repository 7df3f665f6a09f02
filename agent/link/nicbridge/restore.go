package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// undoTimeout limits one attempt to restore. vswitchdTime is the part of it for ovs-vswitchd to
// release a port.
const (
	undoTimeout  = time.Minute
	vswitchdTime = 5 * time.Second
)

// restoreSnapshot restores NIC and bridge to the snapshot from any state. It may be repeated after
// an error.
func (m *mover) restoreSnapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()

	unlock, err := lock(ctx, m.Dir, m.NIC)
	if err != nil {
		return fmt.Errorf("restore %s: %w", m.NIC, err)
	}
	defer unlock()

	if m.snap, err = Load(m.Dir, m.NIC); err != nil {
		return fmt.Errorf("restore %s: %w", m.NIC, err)
	}

	if m.snap.Phase == Restored {
		return nil
	}

	m.held = true
	if err := m.setPhase(Restoring); err != nil {
		return err
	}

	if err := m.moveBack(ctx); err != nil {
		return fmt.Errorf("restore %s from %s: %w", m.NIC, m.snap.Bridge, err)
	}

	m.Log.Info("NIC restored", "nic", m.NIC, "bridge", m.snap.Bridge)

	return m.setPhase(Restored)
}

// moveBack restores everything but the phase, from any state between a complete move and none. Each
// step changes nothing if it was done before. As in a move, the NIC gets each address and route
// before the bridge loses it.
func (m *mover) moveBack(ctx context.Context) error {
	s := m.snap

	l, err := netlink.LinkByName(s.NIC)
	if err != nil {
		return fmt.Errorf("read device %s: %w", s.NIC, err)
	}

	nic, bridge := deviceOf(l), device{s.Bridge, -1} // -1: the device does not exist

	var onBridge [][]byte

	if b, err := netlink.LinkByName(s.Bridge); err == nil {
		bridge = deviceOf(b)
		if onBridge, err = addrsOf(bridge.index); err != nil {
			return err
		}

		if err := m.setting(ctx, s.Bridge, "ipv4/rp_filter", "2"); err != nil {
			return err
		}
	}

	for _, step := range []func() error{
		func() error { return m.fillNIC(ctx, nic, onBridge) },
		func() error { return m.moveRoutes(ctx, bridge, nic) },
		func() error { return m.moveRules(ctx, s.Bridge, s.NIC) },
		func() error { return m.leaveBridge(ctx) },
		func() error { return m.emptyRemainingBridge(ctx) },
		// Again, because removing the last address of a device deletes its neighbours.
		func() error { return m.addNeighbours(ctx, nic) },
		func() error { return m.clearNoDAD(ctx, nic, s.NIC, s.Had.Addresses) },
		func() error { return m.settings(ctx, s.NIC, s.Sysctls.NIC) },
		func() error { return m.clearPromiscuous(ctx) },
		func() error { return m.setting(ctx, s.NIC, "ipv6/addr_gen_mode", s.Sysctls.NIC["ipv6/addr_gen_mode"]) },
		func() error { return m.deleteAddresses(ctx, nic, m.kernelGenerated) },
	} {
		if err := step(); err != nil {
			return err
		}
	}

	return nil
}

// emptyRemainingBridge empties the bridge. It ignores errors of a bridge that is deleted meanwhile.
func (m *mover) emptyRemainingBridge(ctx context.Context) error {
	err := m.emptyBridge(ctx)
	if _, gone := netlink.LinkByName(m.snap.Bridge); gone != nil {
		return nil // deleted with the port, perhaps meanwhile
	}

	return err
}

// clearPromiscuous clears the flag that a dead ovs-vswitchd has left set.
func (m *mover) clearPromiscuous(ctx context.Context) error {
	l, err := netlink.LinkByName(m.snap.NIC)
	if err != nil {
		return fmt.Errorf("read device %s: %w", m.snap.NIC, err)
	}

	if m.snap.Link.Promiscuous || l.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		return nil
	}

	return m.do(ctx, "set "+m.snap.NIC+" not promiscuous", func() error { return netlink.SetPromiscOff(l) })
}

// kernelGenerated reports whether the kernel generated the address when IPv6 was enabled again.
// Addresses from router advertisements stay.
func (m *mover) kernelGenerated(msg []byte) bool {
	a, err := parseAddr(msg)

	return err == nil && a.is6() && !a.dynamic() && a.key.Addr().IsLinkLocalUnicast() &&
		lookup(msg, m.snap.Had.Addresses) == nil
}

// fillNIC restores the NIC's addresses, with the lifetimes that they have onBridge, and neighbours.
// It enables IPv6 without a generated address, because that would undergo duplicate address
// detection for a second.
func (m *mover) fillNIC(ctx context.Context, nic device, onBridge [][]byte) error {
	s := m.snap
	if err := m.do(ctx, "set "+nic.name+" up", func() error { return link.SetUp(nic.name) }); err != nil {
		return err
	}

	if v := s.Sysctls.NIC["ipv6/disable_ipv6"]; v == "0" && readSysctls(nic.name)["ipv6/disable_ipv6"] != v {
		if err := m.setting(ctx, nic.name, "ipv6/addr_gen_mode", "1"); err != nil {
			return err
		}

		if err := m.setting(ctx, nic.name, "ipv6/disable_ipv6", v); err != nil {
			return err
		}
	}

	var addrs [][]byte
	for _, msg := range s.Had.Addresses {
		addrs = append(addrs, renewed(msg, onBridge))
	}

	if err := m.addAddresses(ctx, nic, s.NIC, addrs); err != nil {
		return err
	}

	return m.addNeighbours(ctx, nic)
}

// leaveBridge removes the NIC from the bridge, and returns when the host receives the NIC's packets
// again. The kernel datapath keeps its ports if ovs-vswitchd is dead. So if ovs-vswitchd does not
// release the NIC in time, leaveBridge removes the port from the datapath itself.
func (m *mover) leaveBridge(ctx context.Context) error {
	s := m.snap
	err := m.do(ctx, "remove port "+s.NIC, func() error { return m.Switch.Remove(ctx, s.Bridge, s.NIC) })
	deadline := time.Now().Add(vswitchdTime)

	for {
		l, lerr := netlink.LinkByName(s.NIC)
		if lerr != nil {
			return errors.Join(err, fmt.Errorf("read device %s: %w", s.NIC, lerr))
		}

		master := l.Attrs().MasterIndex
		if master == 0 {
			return err
		}

		if err != nil || time.Now().After(deadline) {
			m.Log.Warn("ovs-vswitchd does not release the NIC, removing it from the datapath", "nic", s.NIC)

			deleteNIC := func() error { return deleteVport(master, s.NIC) }
			if derr := m.do(ctx, "delete vport "+s.NIC, deleteNIC); derr != nil {
				return errors.Join(err, derr)
			}
		}

		if werr := wait(ctx, poll); werr != nil {
			return errors.Join(err, fmt.Errorf("wait for %s to leave OVS: %w", s.NIC, werr))
		}
	}
}

// emptyBridge removes the moved configuration from a bridge that existed before the move.
func (m *mover) emptyBridge(ctx context.Context) error {
	s := m.snap

	l, err := netlink.LinkByName(s.Bridge)
	if err != nil {
		return nil // the bridge was deleted with the port
	}

	had := s.Sysctls.Bridge
	if had == nil { // the move created it, and ovs-vswitchd is not running to delete it
		return m.do(ctx, "set "+s.Bridge+" down", func() error { return netlink.LinkSetDown(l) })
	}

	if had["ipv6/disable_ipv6"] == "1" {
		if err := m.setting(ctx, s.Bridge, "ipv6/disable_ipv6", "1"); err != nil {
			return err
		}
	}

	ours := func(msg []byte) bool { return lookup(msg, s.Had.Addresses) != nil }
	if err := m.deleteAddresses(ctx, deviceOf(l), ours); err != nil {
		return err
	}

	if err := m.deleteNeighbours(ctx, deviceOf(l)); err != nil {
		return err
	}

	for _, key := range []string{"ipv6/addr_gen_mode", "ipv6/disable_ipv6"} {
		if v, ok := had[key]; ok {
			if err := m.setting(ctx, s.Bridge, key, v); err != nil {
				return err
			}
		}
	}

	return m.settings(ctx, s.Bridge, had)
}
