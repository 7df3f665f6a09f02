package ovs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// bridgeMappings is the key that maps OVN's physical networks to bridges.
const bridgeMappings = "ovn-bridge-mappings"

// Settings are the keys in external_ids of Open_vSwitch that ovn-controller reads.
type Settings struct {
	Remote       string // southbound database
	EncapIP      string
	DatapathType string // of br-int: "system" or "netdev"
	Hostname     string // ovn-controller writes it to Chassis.hostname
	SystemID     string // used if none is set
	// FixedSystemID means that SystemID also replaces an existing system-id.
	FixedSystemID bool
	// Refused removes ovn-remote, which keeps ovn-controller from the southbound database: another
	// node has the same system-id, and the two would take the chassis from each other.
	Refused bool
}

// refusedKey exists while ovn-remote is removed because of Settings.Refused. Its value is the
// former value of ovn-remote, or noRemote if ovn-remote was not set.
const (
	refusedKey = "ovn-ebpf-refused-remote"
	noRemote   = "none"
)

// previousSettingsKey stores, as JSON, the values that the keys of SyncSettings had before the
// first agent. It is in OVSDB like these keys: both survive a boot.
const previousSettingsKey = "ovn-ebpf-before"

// previousSettings returns the value of previousSettingsKey for these external_ids.
func previousSettings(ids map[string]string) (string, error) {
	previous := map[string]string{}

	for _, key := range settingKeys() {
		if value := ids[key]; value != "" && key != bridgeMappings { // foreign mappings stay as they are
			previous[key] = value
		}
	}

	text, err := json.Marshal(previous)
	if err != nil {
		return "", fmt.Errorf("record OVS settings: %w", err)
	}

	return string(text), nil
}

// RestoreSettings restores the values of SyncSettings' keys from before the first agent. Without a
// record it changes nothing.
func (c *Client) RestoreSettings(ctx context.Context) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}

	text, recorded := root.ExternalIDs[previousSettingsKey]
	if !recorded {
		return nil
	}

	previous := map[string]string{}
	if err := json.Unmarshal([]byte(text), &previous); err != nil {
		return fmt.Errorf("restore OVS settings: read external_ids:%s: %w", previousSettingsKey, err)
	}

	want := map[string]string{previousSettingsKey: "", refusedKey: ""}

	for _, key := range settingKeys() {
		if key != bridgeMappings {
			want[key] = previous[key] // "" removes a key that did not exist
		}
	}

	return c.SetExternalIDs(ctx, want)
}

// SyncSettings writes s and returns the node's system-id. Existing probe intervals, ovn-monitor-all
// and, unless it is fixed, system-id stay as they are. The first call on a node records the
// previous values for RestoreSettings.
func (c *Client) SyncSettings(ctx context.Context, s Settings) (systemID string, err error) {
	root, err := c.root(ctx)
	if err != nil {
		return "", err
	}

	want, defaults := settingsFor(s)
	syncRefusedRemote(want, root.ExternalIDs, s.Refused)

	for k, v := range defaults {
		if root.ExternalIDs[k] == "" {
			want[k] = v
		}
	}

	if _, recorded := root.ExternalIDs[previousSettingsKey]; !recorded {
		if want[previousSettingsKey], err = previousSettings(root.ExternalIDs); err != nil {
			return "", err
		}
	}

	e := c.edit()
	e.setKeys(root, &root.ExternalIDs, want)

	if err := e.commit(ctx); err != nil {
		return "", fmt.Errorf("write OVS settings: %w", err)
	}

	if id := root.ExternalIDs["system-id"]; id != "" && !s.FixedSystemID {
		return id, nil
	}

	return s.SystemID, nil
}

// syncRefusedRemote adds the keys for Settings.Refused to want. have are the present keys.
//
//   - If refused is true, want removes ovn-remote, and keeps its value under refusedKey.
//   - If refused is false again, want removes refusedKey. It also restores the former value of
//     ovn-remote, if want does not set another one.
func syncRefusedRemote(want, have map[string]string, refused bool) {
	stored, wasRefused := have[refusedKey]

	switch {
	case refused:
		want["ovn-remote"] = "" // removes the key
		want[refusedKey] = cmp.Or(have["ovn-remote"], stored, noRemote)
	case wasRefused:
		want[refusedKey] = ""
		if _, configured := want["ovn-remote"]; !configured && stored != noRemote {
			want["ovn-remote"] = stored
		}
	}
}

// Chassis returns the node's system-id, fallback if none is set, and whether SyncSettings has last
// been called with Settings.Refused.
func (c *Client) Chassis(ctx context.Context, fallback string) (systemID string, refused bool, err error) {
	root, err := c.root(ctx)
	if err != nil {
		return "", false, err
	}

	_, refused = root.ExternalIDs[refusedKey]

	return cmp.Or(root.ExternalIDs["system-id"], fallback), refused, nil
}

// settingsFor splits s into want, the keys to enforce, and defaults for keys that are not set.
func settingsFor(s Settings) (want, defaults map[string]string) {
	want = map[string]string{
		"ovn-remote":               s.Remote,
		"ovn-encap-type":           "geneve",
		"ovn-encap-ip":             s.EncapIP,
		"ovn-bridge-datapath-type": s.DatapathType,
		"hostname":                 s.Hostname,
	}
	defaults = map[string]string{
		"ovn-monitor-all":             "true",
		"ovn-openflow-probe-interval": "180",    // seconds
		"ovn-remote-probe-interval":   "180000", // milliseconds
	}

	if s.FixedSystemID {
		want["system-id"] = s.SystemID
	} else {
		defaults["system-id"] = s.SystemID
	}

	if s.Remote == "" {
		delete(want, "ovn-remote") // set by the operator of ovn-controller
	}

	return want, defaults
}

// settingKeys returns the keys of ovn-controller that SyncSettings and SyncBridgeMapping write. The
// agent's own keys, such as refusedKey, are not among them.
func settingKeys() []string {
	// The value does not matter. Without a Remote, settingsFor would omit the key ovn-remote.
	want, defaults := settingsFor(Settings{Remote: "any"})

	return append(slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(defaults))),
		bridgeMappings)
}

// ExternalIDs returns a copy of the external_ids of Open_vSwitch.
func (c *Client) ExternalIDs(ctx context.Context) (map[string]string, error) {
	root, err := c.root(ctx)
	if err != nil {
		return nil, err
	}

	return maps.Clone(root.ExternalIDs), nil
}

// SetExternalIDs sets keys in external_ids of Open_vSwitch. An empty value removes a key.
func (c *Client) SetExternalIDs(ctx context.Context, want map[string]string) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}

	e := c.edit()
	e.setKeys(root, &root.ExternalIDs, want)

	if err := e.commit(ctx); err != nil {
		return fmt.Errorf("write external_ids of Open_vSwitch: %w", err)
	}

	return nil
}

// SyncBridgeMapping maps network to bridge in ovn-bridge-mappings. An empty bridge removes the
// network. Mappings of other networks are kept.
func (c *Client) SyncBridgeMapping(ctx context.Context, network, bridge string) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}

	merged := mergeMapping(root.ExternalIDs[bridgeMappings], network, bridge)
	if merged == root.ExternalIDs[bridgeMappings] {
		return nil
	}

	if err := c.SetExternalIDs(ctx, map[string]string{bridgeMappings: merged}); err != nil {
		return fmt.Errorf("map network %s to bridge %q: %w", network, bridge, err)
	}

	return nil
}

// BridgeMapping returns the bridge to which network is mapped, or "".
func (c *Client) BridgeMapping(ctx context.Context, network string) (string, error) {
	root, err := c.root(ctx)
	if err != nil {
		return "", err
	}

	for m := range strings.SplitSeq(root.ExternalIDs[bridgeMappings], ",") {
		if n, bridge, _ := strings.Cut(m, ":"); strings.TrimSpace(n) == network {
			return strings.TrimSpace(bridge), nil
		}
	}

	return "", nil
}

// mergeMapping returns current, such as "net1:br1,net2:br2", with network mapped to bridge, in
// current's order. If bridge is empty, it removes network. It drops empty entries.
func mergeMapping(current, network, bridge string) string {
	var out []string

	found := false

	for m := range strings.SplitSeq(current, ",") {
		n, _, _ := strings.Cut(m, ":")
		switch {
		case strings.TrimSpace(m) == "":
		case strings.TrimSpace(n) != network:
			out = append(out, m)
		case !found && bridge != "":
			found = true

			out = append(out, network+":"+bridge)
		}
	}

	if !found && bridge != "" {
		out = append(out, network+":"+bridge)
	}

	return strings.Join(out, ",")
}

// root returns the only row of the table Open_vSwitch.
func (c *Client) root(ctx context.Context) (*vswitch.OpenvSwitch, error) {
	all, err := rows(ctx, c, "table Open_vSwitch", func(*vswitch.OpenvSwitch) bool { return true })
	if err != nil {
		return nil, err
	}

	if len(all) != 1 {
		return nil, fmt.Errorf("read table Open_vSwitch: %d rows instead of one: is the database initialised?", len(all))
	}

	return all[0], nil
}
