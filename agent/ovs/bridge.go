package ovs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// Bridge is the part of a bridge that the agent configures. "" and 0 keep the current value of an
// existing bridge.
type Bridge struct {
	Name         string
	DatapathType string            // DatapathSystem or DatapathNetdev
	FailMode     string            // FailSecure or FailStandalone; a new bridge gets FailSecure by default
	HWAddr       string            // other_config:hwaddr, the MAC address of the internal port
	MTU          int               // mtu_request of the internal port's interface
	OtherConfig  map[string]string // other keys stay; an empty value removes a key
	Existing     bool              // do not create the bridge: ErrNotFound if it is missing
	Uplink       string            // device that must be a port of the bridge

	forHost bool // HostSwitch creates it: a new bridge has no fail mode, and is marked by movedKey
}

// IntegrationBridge is OVN's bridge.
const IntegrationBridge = "br-int"

// Fail modes: the behaviour of a bridge without flows.
const (
	FailSecure     = "secure"     // forwards nothing
	FailStandalone = "standalone" // is a learning switch
)

// SyncBridge creates the bridge with its internal port, or corrects differences. It does not wait
// for ovs-vswitchd.
func (c *Client) SyncBridge(ctx context.Context, want Bridge) error {
	have, err := c.bridge(ctx, want.Name)
	if err != nil {
		return err
	}

	e := c.edit()

	switch {
	case have != nil:
		err = e.updateBridge(ctx, have, want)
	case want.Existing:
		err = ErrNotFound
	default:
		err = e.createBridge(ctx, want)
	}

	if err == nil {
		err = e.commit(ctx)
	}

	if err == nil && want.Uplink != "" {
		err = c.addUplink(ctx, want.Name, want.Uplink)
	}

	if err != nil {
		return fmt.Errorf("write bridge %s: %w", want.Name, err)
	}

	return nil
}

// addUplink makes device a port of the bridge and records it as the uplink. A device that is a port
// of any bridge stays there. Unlike the port of HostSwitch.AddPort, the new one survives a boot.
func (c *Client) addUplink(ctx context.Context, bridge, device string) error {
	if owner, err := c.bridgeWith(ctx, device); err != nil || owner != "" {
		return err
	}

	have, err := c.existingBridge(ctx, bridge)
	if err != nil {
		return err
	}

	e := c.edit()
	iface := &vswitch.Interface{UUID: "iface", Name: device}
	port := &vswitch.Port{UUID: "port", Name: device, Interfaces: []string{iface.UUID}}
	e.create(iface, port)
	e.setKeys(have, &have.ExternalIDs, map[string]string{uplinkKey: device})
	e.insert(have, &have.Ports, port.UUID)

	return e.commit(ctx)
}

// createBridge adds the operations that create the bridge, with its internal port of the same name.
func (e *edit) createBridge(ctx context.Context, want Bridge) error {
	root, err := e.c.root(ctx)
	if err != nil {
		return err
	}

	iface := &vswitch.Interface{
		UUID:       "iface",
		Name:       want.Name,
		Type:       "internal",
		MTURequest: optional(want.MTU),
	}
	port := &vswitch.Port{UUID: "port", Name: want.Name, Interfaces: []string{iface.UUID}}

	bridge := &vswitch.Bridge{
		UUID:         "bridge",
		Name:         want.Name,
		DatapathType: want.DatapathType,
		OtherConfig:  want.otherConfig(),
		Ports:        []string{port.UUID},
	}
	if want.forHost {
		bridge.ExternalIDs = map[string]string{movedKey: "true"}
	} else {
		mode := cmp.Or(want.FailMode, FailSecure)
		bridge.FailMode = &mode
	}

	e.create(iface, port, bridge)
	e.insert(root, &root.Bridges, bridge.UUID)

	return nil
}

// updateBridge adds the operations that make an existing bridge as wanted.
func (e *edit) updateBridge(ctx context.Context, have *vswitch.Bridge, want Bridge) error {
	currentMode := FailStandalone // the default of OVS
	if have.FailMode != nil {
		currentMode = *have.FailMode
	}

	datapath := cmp.Or(want.DatapathType, have.DatapathType)
	mode := cmp.Or(want.FailMode, currentMode)

	if have.DatapathType != datapath || mode != currentMode {
		row := &vswitch.Bridge{UUID: have.UUID, DatapathType: datapath, FailMode: &mode}
		e.update(have, row, &row.DatapathType, &row.FailMode)
	}

	e.setKeys(have, &have.OtherConfig, want.otherConfig())

	iface, err := e.c.iface(ctx, want.Name)
	if err != nil || iface == nil {
		return err
	}

	isMTURequested := iface.MTURequest != nil && *iface.MTURequest == want.MTU
	if want.MTU == 0 || isMTURequested {
		return nil
	}

	row := &vswitch.Interface{UUID: iface.UUID, MTURequest: optional(want.MTU)}
	e.update(iface, row, &row.MTURequest)

	return nil
}

// otherConfig returns the keys that the bridge must have in other_config.
func (want Bridge) otherConfig() map[string]string {
	out := map[string]string{}
	if want.HWAddr != "" {
		out["hwaddr"] = want.HWAddr
	}

	maps.Copy(out, want.OtherConfig)

	return out
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

	e := c.edit()
	e.remove(root, &root.Bridges, have.UUID)

	if err := e.commit(ctx); err != nil {
		return fmt.Errorf("delete bridge %s: %w", name, err)
	}

	return nil
}

// Disconnect deletes the patch ports with which ovn-controller has connected the bridge to OVN's
// integration bridge. A running ovn-controller deletes them itself once the bridge is not mapped.
func (c *Client) Disconnect(ctx context.Context, name string) error {
	peers, err := c.patches(ctx, name)
	if err != nil {
		return err
	}

	own, err := c.patches(ctx, IntegrationBridge)
	if err != nil {
		return err
	}

	unwanted := map[string]bool{}

	for port, peer := range own {
		if peers[peer] == port && strings.HasPrefix(port, "patch-"+IntegrationBridge+"-to-") {
			unwanted[port], unwanted[peer] = true, true
		}
	}

	return c.removePorts(ctx, func(i *vswitch.Interface) bool { return unwanted[i.Name] })
}

// patches maps the bridge's patch ports to their peers. A missing bridge has none.
func (c *Client) patches(ctx context.Context, bridge string) (map[string]string, error) {
	row, err := c.bridge(ctx, bridge)
	if err != nil || row == nil {
		return nil, err
	}

	ports, err := c.bridgePorts(ctx, row)
	out := map[string]string{}

	for _, p := range ports {
		if p.Type == "patch" {
			out[p.Name] = p.Options["peer"]
		}
	}

	return out, err
}

// bridge returns the row, or nil if there is none.
func (c *Client) bridge(ctx context.Context, name string) (*vswitch.Bridge, error) {
	return first(rows(ctx, c, "bridge "+name, func(b *vswitch.Bridge) bool { return b.Name == name }))
}

// existingBridge returns the row, or ErrNotFound if there is none.
func (c *Client) existingBridge(ctx context.Context, name string) (*vswitch.Bridge, error) {
	b, err := c.bridge(ctx, name)
	if err == nil && b == nil {
		err = fmt.Errorf("bridge %s: %w", name, ErrNotFound)
	}

	return b, err
}

// iface returns the interface's row, or nil if there is none.
func (c *Client) iface(ctx context.Context, name string) (*vswitch.Interface, error) {
	return first(rows(ctx, c, "interface "+name, func(i *vswitch.Interface) bool { return i.Name == name }))
}

// first returns the first of the rows, or nil if there are none.
func first[T any](rows []*T, err error) (*T, error) {
	if len(rows) == 0 {
		return nil, err
	}

	return rows[0], nil
}

// optional returns a pointer to v for an optional column, or nil for 0.
func optional(v int) *int {
	if v == 0 {
		return nil
	}

	return &v
}

// OFPorts returns the OpenFlow port numbers of the bridge's ports by name, without LOCAL and
// without ports that ovs-vswitchd has not opened. It returns ErrNotFound if the bridge does not
// exist. A recreated port may get another number; Watch reports that (table Interface).
func (c *Client) OFPorts(ctx context.Context, bridge string) (map[string]uint32, error) {
	return c.ofports(ctx, bridge, func(*vswitch.Interface) bool { return true })
}

// PatchPorts returns the OFPorts that lead to another bridge. ovn-controller creates the patch port
// to br-int once the bridge is mapped and OVN has a localnet port.
func (c *Client) PatchPorts(ctx context.Context, bridge string) (map[string]uint32, error) {
	return c.ofports(ctx, bridge, func(i *vswitch.Interface) bool { return i.Type == "patch" })
}

// ofports returns the OFPorts of the matching interfaces.
func (c *Client) ofports(
	ctx context.Context,
	bridge string,
	match func(*vswitch.Interface) bool,
) (map[string]uint32, error) {
	row, err := c.existingBridge(ctx, bridge)
	if err != nil {
		return nil, err
	}

	ports, err := c.bridgePorts(ctx, row)
	if err != nil {
		return nil, err
	}

	out := map[string]uint32{}

	for _, i := range ports {
		if match(i.Interface) && i.Ofport != nil && *i.Ofport > 0 && *i.Ofport < ofportMax {
			out[i.Name] = uint32(*i.Ofport)
		}
	}

	return out, nil
}

// ofportMax is the first reserved port number of OpenFlow 1.0, which OVS uses in its database
// (LOCAL is 65534).
const ofportMax = 0xff00
