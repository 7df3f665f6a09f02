package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// SavedConfig is the configuration of a node's OVS before an agent takes it over from
// ovn-kubernetes, as far as the agent changes it. ReadConfig reads it, and Restore writes it back
// when the node returns to ovn-kubernetes. Missing entries did not exist.
type SavedConfig struct {
	Settings   map[string]string         // external_ids of Open_vSwitch; "" for a key that did not exist
	Bridges    map[string]SavedBridge    // by name
	Interfaces map[string]SavedInterface // by name
}

// SavedBridge is the part of a bridge that SyncBridge writes.
type SavedBridge struct {
	DatapathType string
	FailMode     *string
	OtherConfig  map[string]string
}

// SavedInterface is the part of an interface that SyncBridge and SyncPort write.
type SavedInterface struct {
	MAC         *string
	MTURequest  *int
	ExternalIDs map[string]string
}

// ReadConfig reads the configuration of these bridges and interfaces.
func (c *Client) ReadConfig(ctx context.Context, bridges, interfaces []string) (SavedConfig, error) {
	k := SavedConfig{
		Settings:   map[string]string{},
		Bridges:    map[string]SavedBridge{},
		Interfaces: map[string]SavedInterface{},
	}

	root, err := c.root(ctx)
	if err != nil {
		return k, err
	}

	for _, key := range append(settingKeys(), previousSettingsKey) {
		k.Settings[key] = root.ExternalIDs[key]
	}

	for _, name := range bridges {
		b, err := c.bridge(ctx, name)
		if err != nil {
			return k, err
		}

		if b != nil {
			k.Bridges[name] = SavedBridge{b.DatapathType, b.FailMode, b.OtherConfig}
		}
	}

	for _, name := range interfaces {
		i, err := c.iface(ctx, name)
		if err != nil {
			return k, err
		}

		if i != nil {
			k.Interfaces[name] = SavedInterface{i.MAC, i.MTURequest, keptIDs(i.ExternalIDs)}
		}
	}

	return k, nil
}

// keptIDs returns a copy of a port's external_ids without the keys that ovn-controller writes.
func keptIDs(ids map[string]string) map[string]string {
	out := maps.Clone(ids)
	maps.DeleteFunc(out, func(k, _ string) bool { return k == Installed || k == Installed+"-ts" })

	return out
}

// Restore writes k back, in one transaction. It does not recreate rows that no longer exist.
func (c *Client) Restore(ctx context.Context, k SavedConfig) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}

	e := c.edit()
	e.setKeys(root, &root.ExternalIDs, k.Settings)

	var errs []error
	for name, saved := range k.Bridges {
		errs = append(errs, e.restoreBridge(ctx, name, saved))
	}

	for name, saved := range k.Interfaces {
		errs = append(errs, e.restoreInterface(ctx, name, saved))
	}

	if err := errors.Join(append(errs, e.commit(ctx))...); err != nil {
		return fmt.Errorf("restore the OVS configuration: %w", err)
	}

	return nil
}

// restoreBridge adds the operations that restore a bridge, if it exists.
func (e *edit) restoreBridge(ctx context.Context, name string, saved SavedBridge) error {
	have, err := e.c.bridge(ctx, name)
	if err != nil || have == nil {
		return err
	}

	row := &vswitch.Bridge{
		UUID:         have.UUID,
		DatapathType: saved.DatapathType,
		FailMode:     saved.FailMode,
		OtherConfig:  saved.OtherConfig,
	}
	e.update(have, row, &row.DatapathType, &row.FailMode, &row.OtherConfig)

	return nil
}

// restoreInterface adds the operations that restore an interface, if it exists.
func (e *edit) restoreInterface(ctx context.Context, name string, saved SavedInterface) error {
	have, err := e.c.iface(ctx, name)
	if err != nil || have == nil {
		return err
	}

	row := &vswitch.Interface{UUID: have.UUID, MAC: saved.MAC, MTURequest: saved.MTURequest}
	e.update(have, row, &row.MAC, &row.MTURequest)

	want := map[string]string{}
	for key := range keptIDs(have.ExternalIDs) {
		want[key] = saved.ExternalIDs[key] // "", which removes it, for a key of the agent
	}

	maps.Copy(want, saved.ExternalIDs)
	e.setKeys(have, &have.ExternalIDs, want)

	return nil
}

// PredecessorCookie is the cookie of flows that ovnkube-node of ovn-kubernetes writes on its
// gateway bridge.
const PredecessorCookie = "0xdeff105"

// PredecessorFlows returns the bridge's flows of ovn-kubernetes, sorted, as the argument flows of
// ReturnFlows.
func PredecessorFlows(ctx context.Context, rundir, bridge string) ([]string, error) {
	out, err := dumpFlows(ctx, bridgeTarget(rundir, bridge))
	if err != nil {
		return nil, fmt.Errorf("read flows of %s: %w", bridge, err)
	}

	var flows []string

	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "cookie="+PredecessorCookie+",") {
			flows = append(flows, line)
		}
	}

	slices.Sort(flows)

	return flows, nil
}

// ReturnFlows replaces the agent's flows on the bridge by those of PredecessorFlows and by the
// handover flows, which keep existing connections alive, in one atomic bundle. handover flows get
// the agent's cookie, because they expire.
func ReturnFlows(ctx context.Context, rundir, bridge string, flows, handover []string) error {
	mods := []string{"delete cookie=" + Cookie + "/" + CookieMask + "\n", deleteCookie(LearnedCookie)}
	for _, f := range flows {
		mods = append(mods, "add "+f+"\n")
	}

	for _, f := range handover {
		mods = append(mods, "add cookie="+Cookie+","+f+"\n")
	}

	return (&FlowSync{RunDir: rundir, Bridge: bridge}).write(ctx, mods)
}
