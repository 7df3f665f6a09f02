package ovs

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// movedKey is the key in external_ids of a bridge that HostSwitch created and may delete.
const movedKey = "ovn-ebpf-nics-to-bridge"

// HostSwitch creates and removes bridges that carry the host's traffic. It is the nicbridge.Switch
// of a move. A new bridge has no fail mode, so it is a learning switch until it gets flows.
type HostSwitch struct {
	Client       *Client
	DatapathType string // of new bridges
}

// AddBridge creates the bridge, or corrects MAC and MTU of its internal port.
func (s HostSwitch) AddBridge(ctx context.Context, name, mac string, mtu int) error {
	have, err := s.Client.bridge(ctx, name)
	if err != nil {
		return err
	}

	want := Bridge{Name: name, HWAddr: mac, MTU: mtu, forHost: true}
	if have == nil {
		want.DatapathType = s.DatapathType
	}

	return s.Client.SyncBridge(ctx, want)
}

// AddPort adds the device to the bridge and waits until ovs-vswitchd has assigned a port number.
// The port is transient, because the addresses on the bridge do not survive a boot, and a port
// without them would only cut the host off. AddPort fails if ovs-vswitchd cannot open the device.
// It returns ErrForeign (wrapped) if another bridge has the device.
func (s HostSwitch) AddPort(ctx context.Context, bridge, device string) error {
	owner, err := s.Client.bridgeWith(ctx, device)
	if err != nil {
		return err
	}

	if owner != "" && owner != bridge {
		return fmt.Errorf("add %s to bridge %s: %w: bridge %s has it", device, bridge, ErrForeign, owner)
	}

	wake := loop.NewSignal()
	isDevice := func(table, name string) bool { return table == vswitch.InterfaceTable && name == device }

	stop := s.Client.Watch(isDevice, wake)
	defer stop()

	if err := s.Client.SyncPort(ctx, Port{Bridge: bridge, Name: device, Transient: true}); err != nil {
		return err
	}

	for {
		i, err := s.Client.iface(ctx, device)
		switch {
		case err != nil:
			return err
		case i != nil && i.Error != nil && *i.Error != "":
			return fmt.Errorf("add %s to bridge %s: vswitchd: %s", device, bridge, *i.Error)
		case i != nil && i.Ofport != nil && *i.Ofport > 0:
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("add %s to bridge %s: wait for vswitchd: %w",
				device, bridge, context.Cause(ctx))
		case <-wake:
		case <-time.After(time.Second): // read the row again even without an event
		}
	}
}

// Remove takes the device out of the bridge and deletes a bridge that AddBridge created. It does
// not wait for ovs-vswitchd.
func (s HostSwitch) Remove(ctx context.Context, bridge, device string) error {
	owner, err := s.Client.bridgeWith(ctx, device)
	if err != nil {
		return err
	}

	if owner == bridge {
		if err := s.Client.RemovePort(ctx, device); err != nil {
			return err
		}
	}

	have, err := s.Client.bridge(ctx, bridge)
	if err != nil || have == nil || have.ExternalIDs[movedKey] == "" {
		return err
	}

	return s.Client.RemoveBridge(ctx, bridge)
}
