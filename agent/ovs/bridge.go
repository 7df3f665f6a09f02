package ovs

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// Bridge is the part of a bridge that the agent configures.
type Bridge struct {
	Name         string
	DatapathType string // "" keeps the current one
	FailMode     string // FailSecure or FailStandalone; "" keeps the current one, and means FailSecure for a new bridge
	HWAddr       string // other_config:hwaddr; "" keeps it
	MTU          int    // mtu_request of the internal interface; 0 keeps it
	OtherConfig  map[string]string
	Existing     bool   // do not create the bridge: ErrNotFound if it is missing
	Uplink       string // device that must be a port; "" leaves ports unchanged
}

// IntegrationBridge is OVN's bridge.
const IntegrationBridge = "br-int"

// Fail modes: the behaviour of a bridge without flows.
const (
	FailSecure     = "secure"     // forwards nothing
	FailStandalone = "standalone" // is a learning switch
)

// SyncBridge creates the bridge with its internal port, or corrects differences.
func (c *Client) SyncBridge(ctx context.Context, want Bridge) error {
	have, err := c.bridge(ctx, want.Name)
	if err != nil {
		return err
	}
	var ops []ovsdb.Operation
	switch {
	case have != nil:
		ops, err = c.updateBridge(ctx, have, want)
	case want.Existing:
		err = ErrNotFound
	default:
		ops, err = c.createBridge(ctx, want)
	}
	if err == nil {
		err = c.transact(ctx, ops)
	}
	if err == nil && want.Uplink != "" {
		err = c.addUplink(ctx, want.Name, want.Uplink)
	}
	if err != nil {
		return fmt.Errorf("write bridge %s: %w", want.Name, err)
	}
	return nil
}

// addUplink makes device a port of the bridge and records it as the uplink. Port options are the
// same as those of nics-to-bridge.
func (c *Client) addUplink(ctx context.Context, bridge, device string) error {
	if owner, err := c.bridgeWith(ctx, device); err != nil || owner != "" {
		return err
	}
	have, err := c.bridge(ctx, bridge)
	if err != nil {
		return err
	}
	if have == nil {
		return fmt.Errorf("bridge %s: %w", bridge, ErrNotFound)
	}
	iface := &vswitch.Interface{UUID: "iface", Name: device}
	port := &vswitch.Port{UUID: "port", Name: device, Interfaces: []string{iface.UUID}}
	ops, err := c.db.Create(iface)
	if err != nil {
		return err
	}
	add, err := c.db.Create(port)
	if err != nil {
		return err
	}
	muts := append(mutateMap(&have.ExternalIDs, have.ExternalIDs, map[string]string{uplinkKey: device}),
		model.Mutation{Field: &have.Ports, Mutator: ovsdb.MutateOperationInsert, Value: []string{port.UUID}})
	put, err := c.db.Where(have).Mutate(have, muts...)
	if err != nil {
		return err
	}
	return c.transact(ctx, append(append(ops, add...), put...))
}

func (want Bridge) otherConfig() map[string]string {
	out := map[string]string{}
	if want.HWAddr != "" {
		out["hwaddr"] = want.HWAddr
	}
	for k, v := range want.OtherConfig {
		out[k] = v
	}
	return out
}

func (c *Client) createBridge(ctx context.Context, want Bridge) ([]ovsdb.Operation, error) {
	root, err := c.root(ctx)
	if err != nil {
		return nil, err
	}
	mode := cmp.Or(want.FailMode, FailSecure)
	iface := &vswitch.Interface{UUID: "iface", Name: want.Name, Type: "internal", MTURequest: optional(want.MTU)}
	port := &vswitch.Port{UUID: "port", Name: want.Name, Interfaces: []string{iface.UUID}}
	bridge := &vswitch.Bridge{
		UUID: "bridge", Name: want.Name, DatapathType: want.DatapathType,
		FailMode: &mode, OtherConfig: want.otherConfig(), Ports: []string{port.UUID},
	}
	var ops []ovsdb.Operation
	for _, m := range []model.Model{iface, port, bridge} {
		op, err := c.db.Create(m)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	add, err := c.db.Where(root).Mutate(root, model.Mutation{
		Field: &root.Bridges, Mutator: ovsdb.MutateOperationInsert, Value: []string{bridge.UUID},
	})
	return append(ops, add...), err
}

func (c *Client) updateBridge(ctx context.Context, have *vswitch.Bridge, want Bridge) ([]ovsdb.Operation, error) {
	var ops []ovsdb.Operation
	is := FailStandalone // the default of OVS
	if have.FailMode != nil {
		is = *have.FailMode
	}
	datapath, mode := cmp.Or(want.DatapathType, have.DatapathType), cmp.Or(want.FailMode, is)
	if have.DatapathType != datapath || mode != is {
		row := &vswitch.Bridge{UUID: have.UUID, DatapathType: datapath, FailMode: &mode}
		op, err := c.db.Where(have).Update(row, &row.DatapathType, &row.FailMode)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	if muts := mutateMap(&have.OtherConfig, have.OtherConfig, want.otherConfig()); len(muts) > 0 {
		op, err := c.db.Where(have).Mutate(have, muts...)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	iface, err := c.iface(ctx, want.Name)
	if err != nil || iface == nil || want.MTU == 0 || iface.MTURequest != nil && *iface.MTURequest == want.MTU {
		return ops, err
	}
	row := &vswitch.Interface{UUID: iface.UUID, MTURequest: optional(want.MTU)}
	op, err := c.db.Where(iface).Update(row, &row.MTURequest)
	return append(ops, op...), err
}

// RemoveBridge deletes the bridge with all its ports. A missing bridge is not an error.
func (c *Client) RemoveBridge(ctx context.Context, name string) error {
	have, err := c.bridge(ctx, name)
	if err != nil || have == nil {
		return err
	}
	root, err := c.root(ctx)
	if err != nil {
		return err
	}
	ops, err := c.db.Where(root).Mutate(root, model.Mutation{
		Field: &root.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: []string{have.UUID},
	})
	if err == nil {
		err = c.transact(ctx, ops)
	}
	if err != nil {
		return fmt.Errorf("delete bridge %s: %w", name, err)
	}
	return nil
}

// bridge returns the row, or nil if there is none.
func (c *Client) bridge(ctx context.Context, name string) (*vswitch.Bridge, error) {
	var rows []*vswitch.Bridge
	err := c.db.WhereCache(func(b *vswitch.Bridge) bool { return b.Name == name }).List(ctx, &rows)
	if err != nil {
		return nil, fmt.Errorf("read bridge %s: %w", name, err)
	}
	return first(rows), nil
}

// iface returns the interface's row, or nil if there is none.
func (c *Client) iface(ctx context.Context, name string) (*vswitch.Interface, error) {
	var rows []*vswitch.Interface
	err := c.db.WhereCache(func(i *vswitch.Interface) bool { return i.Name == name }).List(ctx, &rows)
	if err != nil {
		return nil, fmt.Errorf("read interface %s: %w", name, err)
	}
	return first(rows), nil
}

func first[T any](rows []*T) *T {
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

func optional(v int) *int {
	if v == 0 {
		return nil
	}
	return &v
}
