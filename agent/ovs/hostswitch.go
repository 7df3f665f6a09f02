package ovs

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// movedKey marks a bridge that HostSwitch created and may delete.
const movedKey = "ovn-ebpf-nics-to-bridge"

// HostSwitch creates and removes bridges that carry the host's traffic, for nicbridge.Move. A new
// bridge has no fail mode, so it is a learning switch until it gets flows.
type HostSwitch struct {
	Client       *Client
	DatapathType string // of new bridges
}

// AddBridge creates the bridge, or corrects MAC and MTU of its internal port.
func (s HostSwitch) AddBridge(ctx context.Context, name, mac string, mtu int) error {
	c := s.Client
	have, err := c.bridge(ctx, name)
	if err != nil {
		return err
	}
	var ops []ovsdb.Operation
	if have == nil {
		ops, err = s.create(ctx, name, mac, mtu)
	} else {
		ops, err = s.correct(ctx, have, mac, mtu)
	}
	if err == nil {
		err = c.transact(ctx, ops)
	}
	if err != nil {
		return fmt.Errorf("write bridge %s: %w", name, err)
	}
	return nil
}

func (s HostSwitch) create(ctx context.Context, name, mac string, mtu int) ([]ovsdb.Operation, error) {
	root, err := s.Client.root(ctx)
	if err != nil {
		return nil, err
	}
	iface := &vswitch.Interface{UUID: "iface", Name: name, Type: "internal", MTURequest: optional(mtu)}
	port := &vswitch.Port{UUID: "port", Name: name, Interfaces: []string{iface.UUID}}
	bridge := &vswitch.Bridge{
		UUID: "bridge", Name: name, DatapathType: s.DatapathType, Ports: []string{port.UUID},
		OtherConfig: map[string]string{"hwaddr": mac}, ExternalIDs: map[string]string{movedKey: "true"},
	}
	var ops []ovsdb.Operation
	for _, m := range []model.Model{iface, port, bridge} {
		op, err := s.Client.db.Create(m)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	add, err := s.Client.db.Where(root).Mutate(root, model.Mutation{
		Field: &root.Bridges, Mutator: ovsdb.MutateOperationInsert, Value: []string{bridge.UUID},
	})
	return append(ops, add...), err
}

func (s HostSwitch) correct(ctx context.Context, have *vswitch.Bridge, mac string, mtu int) ([]ovsdb.Operation, error) {
	var ops []ovsdb.Operation
	if muts := mutateMap(&have.OtherConfig, have.OtherConfig, map[string]string{"hwaddr": mac}); len(muts) > 0 {
		op, err := s.Client.db.Where(have).Mutate(have, muts...)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	iface, err := s.Client.iface(ctx, have.Name)
	if err != nil || iface == nil || iface.MTURequest != nil && *iface.MTURequest == mtu {
		return ops, err
	}
	row := &vswitch.Interface{UUID: iface.UUID, MTURequest: optional(mtu)}
	op, err := s.Client.db.Where(iface).Update(row, &row.MTURequest)
	return append(ops, op...), err
}

// AddPort adds the device to the bridge and waits until ovs-vswitchd has assigned a port number.
// The port is transient: a boot removes it if OVS is started with --delete-transient-ports. The
// addresses on the bridge do not survive a boot, and a port without them would only cut the host
// off. AddPort fails if ovs-vswitchd cannot open the device or another bridge has it.
func (s HostSwitch) AddPort(ctx context.Context, bridge, device string) error {
	owner, err := s.Client.bridgeWith(ctx, device)
	if err != nil {
		return err
	}
	if owner != "" && owner != bridge {
		return fmt.Errorf("add %s to bridge %s: %w: bridge %s has it", device, bridge, ErrForeign, owner)
	}
	wake, stop := s.Client.Watch(func(table, name string) bool { return table == vswitch.InterfaceTable && name == device })
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
			return fmt.Errorf("add %s to bridge %s: wait for vswitchd: %w", device, bridge, context.Cause(ctx))
		case <-wake:
		case <-time.After(time.Second): // the row is part of the transaction
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
