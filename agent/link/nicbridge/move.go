package nicbridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// prepare checks the NIC and writes the snapshot. It changes nothing else. It returns an error that
// wraps ErrOwned if another program configures the NIC, unless Force is set.
func prepare(ctx context.Context, o Options) (*mover, error) {
	nic, err := netlink.LinkByName(o.NIC)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil, fmt.Errorf("device %s: %w", o.NIC, link.ErrNotFound)
	}

	if err != nil {
		return nil, fmt.Errorf("read device: %w", err)
	}

	if err := checkMaster(nic); err != nil {
		return nil, err
	}

	if owner := findOwner("/", o.NIC, nic.Attrs().Index); owner != nil {
		if !o.Force {
			return nil, owner
		}

		o.Log.Warn("moving a NIC that another program configures", "nic", o.NIC, "owner", owner.program)
	}

	if file := keepsTransientPorts("/"); file != "" {
		o.Log.Warn("after a reboot the NIC will be a port of OVS without the host's addresses until the agent runs: have OVS started with --delete-transient-ports",
			"nic", o.NIC, "file", file)
	}

	snap, err := takeSnapshot(nic, o.Bridge)
	if err != nil {
		return nil, err
	}

	snap.Asked = o.Asked
	if snap.Gateways, err = answeringNeighbours(ctx, snap.nextHops(), snap.Link.Index); err != nil {
		return nil, err
	}

	// After the probes the entries are complete.
	if snap.Had.Neighbours, err = neighsOf(snap.Link.Index); err != nil {
		return nil, err
	}

	return &mover{Options: o, snap: snap}, snap.save(o.Dir)
}

// checkMaster returns an error if the device is a port of something else than OVS.
func checkMaster(nic netlink.Link) error {
	index := nic.Attrs().MasterIndex
	if index == 0 {
		return nil
	}

	master, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read master of %s: %w", nic.Attrs().Name, err)
	}

	if master.Type() == "openvswitch" {
		return nil // a port of OVS that still has the host's addresses, as after a reboot
	}

	return fmt.Errorf("%s is a port of %s %s", nic.Attrs().Name, master.Type(), master.Attrs().Name)
}

// applyMove makes all changes, in an order in which the host always has its addresses and routes on
// a device that works, and verifies the gateways.
func (m *mover) applyMove(ctx context.Context) error {
	s := m.snap

	err := m.do(ctx, "add bridge "+s.Bridge,
		func() error { return m.Switch.AddBridge(ctx, s.Bridge, s.Link.MAC, s.Link.MTU) })
	if err != nil {
		return err
	}

	nic, err := linkNamed(ctx, s.NIC)
	if err != nil {
		return err
	}

	bridge, err := m.readyBridge(ctx)
	if err != nil {
		return err
	}

	for _, step := range []func() error{
		func() error { return m.addAddresses(ctx, deviceOf(bridge), s.NIC, s.Had.Addresses) },
		func() error { return m.addNeighbours(ctx, deviceOf(bridge)) },
		func() error {
			return m.do(ctx, "add port "+s.NIC, func() error { return m.Switch.AddPort(ctx, s.Bridge, s.NIC) })
		},
		func() error { return m.runOnPortAdded(ctx) },
		func() error { return m.moveRoutes(ctx, deviceOf(nic), deviceOf(bridge)) },
		func() error { return m.moveRules(ctx, s.NIC, s.Bridge) },
		func() error { return m.emptyNIC(ctx, deviceOf(nic)) },
		func() error { return m.settle(ctx, deviceOf(bridge)) },
		func() error { return m.do(ctx, "ask the gateways", func() error { return s.verify(ctx) }) },
		func() error {
			s.BridgeIndex = bridge.Attrs().Index
			return m.do(ctx, "write the end", func() error { return m.setPhase(Done) })
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}

	m.Log.Info("NIC moved to its bridge", "nic", s.NIC, "bridge", s.Bridge, "addresses", s.Had.Text)

	return nil
}

// readyBridge sets the bridge's internal port up with the NIC's settings and without a generated
// address.
func (m *mover) readyBridge(ctx context.Context) (netlink.Link, error) {
	s := m.snap

	bridge, err := linkNamed(ctx, s.Bridge)
	if err != nil {
		return nil, err
	}

	// 1 is IN6_ADDR_GEN_MODE_NONE: the kernel generates no link-local address.
	if err := m.setting(ctx, s.Bridge, "ipv6/addr_gen_mode", "1"); err != nil {
		return nil, err
	}

	// 2 is loose mode: during the move, one device has the routes and the other receives the
	// packets.
	if err := m.setting(ctx, s.Bridge, "ipv4/rp_filter", "2"); err != nil {
		return nil, err
	}

	if err := m.settings(ctx, s.Bridge, s.Sysctls.NIC, "ipv4/rp_filter"); err != nil {
		return nil, err
	}

	if err := m.setting(ctx, s.Bridge, "ipv6/disable_ipv6", s.Sysctls.NIC["ipv6/disable_ipv6"]); err != nil {
		return nil, err
	}

	if bridge.Attrs().MTU != s.Link.MTU {
		set := func() error { return netlink.LinkSetMTU(bridge, s.Link.MTU) }
		if err := m.do(ctx, "set MTU of "+s.Bridge, set); err != nil {
			return nil, err
		}
	}

	for bridge.Attrs().HardwareAddr.String() != s.Link.MAC { // vswitchd sets it
		if err := wait(ctx, poll); err != nil {
			return nil, fmt.Errorf("wait for %s to have MAC %s: %w", s.Bridge, s.Link.MAC, err)
		}

		if bridge, err = linkNamed(ctx, s.Bridge); err != nil {
			return nil, err
		}
	}

	return bridge, m.do(ctx, "set "+s.Bridge+" up", func() error { return link.SetUp(s.Bridge) })
}

// runOnPortAdded calls OnPortAdded, if it is set.
func (m *mover) runOnPortAdded(ctx context.Context) error {
	if m.OnPortAdded == nil {
		return nil
	}

	return m.do(ctx, "make the bridge carry the host", func() error { return m.OnPortAdded(ctx) })
}

// emptyNIC removes the addresses from the NIC. The bridge has them now. Disabling IPv6 removes all
// IPv6 addresses.
func (m *mover) emptyNIC(ctx context.Context, nic device) error {
	if err := m.setting(ctx, nic.name, "ipv6/disable_ipv6", "1"); err != nil {
		return err
	}

	return m.deleteAddresses(ctx, nic, func(msg []byte) bool { return msg[familyAt] == unix.AF_INET })
}

// settle ends the temporary settings that addAddresses and readyBridge have made for the move.
func (m *mover) settle(ctx context.Context, bridge device) error {
	s := m.snap
	if err := m.clearNoDAD(ctx, bridge, s.NIC, s.Had.Addresses); err != nil {
		return err
	}

	if v := s.Sysctls.NIC["ipv6/addr_gen_mode"]; v == "0" { // other modes depend on a secret, or on the device
		if err := m.setting(ctx, bridge.name, "ipv6/addr_gen_mode", v); err != nil {
			return err
		}
	}

	return m.setting(ctx, bridge.name, "ipv4/rp_filter", s.Sysctls.NIC["ipv4/rp_filter"])
}

// setPhase writes the progress of the move into the snapshot. It requires the lock.
func (m *mover) setPhase(p Phase) error {
	m.snap.Phase = p
	return m.snap.save(m.Dir)
}
