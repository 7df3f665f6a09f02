package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// Kept is the configuration of a node's OVS before the first agent, as far as the agent changes it.
// Missing entries did not exist.
type Kept struct {
	Settings   map[string]string        // external_ids of Open_vSwitch; "" for a key that did not exist
	Bridges    map[string]KeptBridge    // by name
	Interfaces map[string]KeptInterface // by name
}

// KeptBridge is the part of a bridge that SyncBridge writes.
type KeptBridge struct {
	DatapathType string
	FailMode     *string
	OtherConfig  map[string]string
}

// KeptInterface is the part of an interface that SyncBridge and SyncPort write.
type KeptInterface struct {
	MAC         *string
	MTURequest  *int
	ExternalIDs map[string]string
}

// settingKeys are the keys that SyncSettings and SyncBridgeMapping write.
func settingKeys() []string {
	want, keep := settingsFor(Settings{Remote: "is named"})
	return append(slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(keep))), bridgeMappings)
}

// Keep reads the configuration of these bridges and interfaces.
func (c *Client) Keep(ctx context.Context, bridges, interfaces []string) (Kept, error) {
	k := Kept{Settings: map[string]string{}, Bridges: map[string]KeptBridge{}, Interfaces: map[string]KeptInterface{}}
	root, err := c.root(ctx)
	if err != nil {
		return k, err
	}
	for _, key := range append(settingKeys(), beforeKey) {
		k.Settings[key] = root.ExternalIDs[key]
	}
	for _, name := range bridges {
		b, err := c.bridge(ctx, name)
		if err != nil {
			return k, err
		}
		if b != nil {
			k.Bridges[name] = KeptBridge{b.DatapathType, b.FailMode, b.OtherConfig}
		}
	}
	for _, name := range interfaces {
		i, err := c.iface(ctx, name)
		if err != nil {
			return k, err
		}
		if i != nil {
			k.Interfaces[name] = KeptInterface{i.MAC, i.MTURequest, keptIDs(i.ExternalIDs)}
		}
	}
	return k, nil
}

// keptIDs removes the keys that ovn-controller writes for a port.
func keptIDs(ids map[string]string) map[string]string {
	out := maps.Clone(ids)
	maps.DeleteFunc(out, func(k, _ string) bool { return k == Installed || k == Installed+"-ts" })
	return out
}

// Restore writes k back, in one transaction. It does not recreate rows that no longer exist.
func (c *Client) Restore(ctx context.Context, k Kept) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}
	ops, err := c.setExternalIDs(root, k.Settings)
	errs := []error{err}
	for name, was := range k.Bridges {
		more, err := c.restoreBridge(ctx, name, was)
		ops, errs = append(ops, more...), append(errs, err)
	}
	for name, was := range k.Interfaces {
		more, err := c.restoreInterface(ctx, name, was)
		ops, errs = append(ops, more...), append(errs, err)
	}
	if err := errors.Join(append(errs, c.transact(ctx, ops))...); err != nil {
		return fmt.Errorf("restore the OVS configuration: %w", err)
	}
	return nil
}

func (c *Client) restoreBridge(ctx context.Context, name string, was KeptBridge) ([]ovsdb.Operation, error) {
	have, err := c.bridge(ctx, name)
	if err != nil || have == nil {
		return nil, err
	}
	row := &vswitch.Bridge{UUID: have.UUID, DatapathType: was.DatapathType, FailMode: was.FailMode, OtherConfig: was.OtherConfig}
	return c.db.Where(have).Update(row, &row.DatapathType, &row.FailMode, &row.OtherConfig)
}

func (c *Client) restoreInterface(ctx context.Context, name string, was KeptInterface) ([]ovsdb.Operation, error) {
	have, err := c.iface(ctx, name)
	if err != nil || have == nil {
		return nil, err
	}
	row := &vswitch.Interface{UUID: have.UUID, MAC: was.MAC, MTURequest: was.MTURequest}
	ops, err := c.db.Where(have).Update(row, &row.MAC, &row.MTURequest)
	if err != nil {
		return nil, err
	}
	want := maps.Clone(was.ExternalIDs)
	if want == nil {
		want = map[string]string{}
	}
	for key := range keptIDs(have.ExternalIDs) {
		if _, is := want[key]; !is {
			want[key] = "" // the agent's key
		}
	}
	muts := mutateMap(&have.ExternalIDs, have.ExternalIDs, want)
	if len(muts) == 0 {
		return ops, nil
	}
	more, err := c.db.Where(have).Mutate(have, muts...)
	return append(ops, more...), err
}
