package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// ErrForeign is returned (wrapped) for objects in OVS that the agent does not own and must not
// change.
var ErrForeign = errors.New("not owned by the agent")

// CheckGateway returns nil if layout direct, in which the uplink is not in OVS, may use the bridge:
//
//   - The uplink is not a port of OVS, neither a bridge's NIC nor its internal port.
//   - The bridge, if it exists, has only its internal port and patch ports.
//
// Otherwise it returns ErrForeign (wrapped). On a node of ovn-kubernetes the bridge has the NIC and
// the host's addresses.
func (c *Client) CheckGateway(ctx context.Context, uplink, bridge string) error {
	owner, err := c.bridgeWith(ctx, uplink)
	if err != nil {
		return err
	}

	if owner != "" {
		return fmt.Errorf("uplink %s is a port of OVS bridge %s: %w: layout direct needs a NIC that is not in OVS",
			uplink, owner, ErrForeign)
	}

	foreign, err := c.portBeside(ctx, bridge)
	if err == nil && foreign != "" {
		err = fmt.Errorf("OVS bridge %s has the port %s: %w: layout direct needs the bridge for itself",
			bridge, foreign, ErrForeign)
	}

	return err
}

// portBeside returns a port of the bridge that is neither its internal port, nor a patch port, nor
// one of names. It returns "" without such a port, or without the bridge.
func (c *Client) portBeside(ctx context.Context, bridge string, names ...string) (string, error) {
	have, err := c.bridge(ctx, bridge)
	if err != nil || have == nil {
		return "", err
	}

	ports, err := c.bridgePorts(ctx, have)
	for _, p := range ports {
		if p.Name != bridge && p.Type != "patch" && !slices.Contains(names, p.Name) {
			return p.port, err
		}
	}

	return "", err
}

// CheckMember does what CheckGateway does, for layouts in which the uplink is a port of the bridge.
// The uplink must be a port of that bridge or of none. Beside it the bridge must have only its
// internal port and patch ports. isMember reports whether the uplink is a port already.
func (c *Client) CheckMember(ctx context.Context, uplink, bridge string) (isMember bool, err error) {
	owner, err := c.bridgeWith(ctx, uplink)
	if err != nil {
		return false, err
	}

	if owner != "" && owner != bridge {
		return false, fmt.Errorf("uplink %s is a port of OVS bridge %s: %w: want it in %s",
			uplink, owner, ErrForeign, bridge)
	}

	foreign, err := c.portBeside(ctx, bridge, uplink)
	if err != nil {
		return false, err
	}

	if foreign != "" {
		return false, fmt.Errorf("OVS bridge %s has the port %s: %w: want only %s there",
			bridge, foreign, ErrForeign, uplink)
	}

	return owner != "", nil
}

// uplinkKey is the key under which nics-to-bridge records a bridge's physical port, like
// ovn-kubernetes.
const uplinkKey = "bridge-uplink"

// GatewayBridge returns the bridge and the uplink that device belongs to; device is one of the two.
// The uplink is taken from the bridge's external_ids, or is its only port that is neither internal
// nor a patch port. Without a bridge both are "".
func (c *Client) GatewayBridge(ctx context.Context, device string) (bridge, uplink string, err error) {
	have, err := c.bridge(ctx, device)
	if err != nil {
		return "", "", err
	}

	if have == nil {
		if bridge, err = c.bridgeWith(ctx, device); err != nil || bridge == "" {
			return "", "", err
		}

		return bridge, device, nil
	}

	if u := have.ExternalIDs[uplinkKey]; u != "" {
		return device, u, nil
	}

	ports, err := c.bridgePorts(ctx, have)
	if err != nil {
		return "", "", err
	}

	var physical []string

	for _, p := range ports {
		if p.Name != device && p.Type != "patch" && p.Type != "internal" {
			physical = append(physical, p.Name)
		}
	}

	slices.Sort(physical)

	if len(physical) != 1 {
		return "", "", fmt.Errorf("OVS bridge %s: %d candidates for its uplink, %q: want one",
			device, len(physical), physical)
	}

	return device, physical[0], nil
}

// bridgeWith returns the name of the bridge that has a port or an interface with the device's name,
// or "".
func (c *Client) bridgeWith(ctx context.Context, device string) (string, error) {
	bridges, err := c.bridges(ctx)
	if err != nil {
		return "", err
	}

	for _, b := range bridges {
		ports, err := c.bridgePorts(ctx, b)
		if err != nil {
			return "", err
		}

		isDevice := func(p bridgePort) bool { return p.Name == device || p.port == device }
		if slices.ContainsFunc(ports, isDevice) {
			return b.Name, nil
		}
	}

	return "", nil
}

// bridges returns the rows of all bridges.
func (c *Client) bridges(ctx context.Context) ([]*vswitch.Bridge, error) {
	return rows(ctx, c, "bridges", func(*vswitch.Bridge) bool { return true })
}

// bridgePort is an interface of a port. A bond is a port with several interfaces.
type bridgePort struct {
	port string // name of the port
	*vswitch.Interface
}

// bridgePorts reads the interfaces of a bridge's ports. The tables are read one after the other, so
// a port may change meanwhile; then bridgePorts reads the bridge again.
func (c *Client) bridgePorts(ctx context.Context, b *vswitch.Bridge) ([]bridgePort, error) {
	const tries = 20

	for try := 1; ; try++ {
		ports, err := c.portsOf(ctx, b)
		if !errors.Is(err, client.ErrNotFound) || try == tries {
			return ports, err
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read ports of bridge %s: %w", b.Name, ctx.Err())
		case <-time.After(5 * time.Millisecond): // wait for consistent tables
		}

		reread := &vswitch.Bridge{UUID: b.UUID}
		if err := c.db.Get(ctx, reread); errors.Is(err, client.ErrNotFound) {
			return nil, nil // the bridge is gone as well
		} else if err != nil {
			return nil, fmt.Errorf("read bridge %s: %w", b.Name, err)
		}

		b = reread
	}
}

// portsOf is one attempt of bridgePorts. It returns client.ErrNotFound (wrapped) if a row is
// missing.
func (c *Client) portsOf(ctx context.Context, b *vswitch.Bridge) ([]bridgePort, error) {
	var out []bridgePort

	for _, uuid := range b.Ports {
		port := &vswitch.Port{UUID: uuid}
		if err := c.db.Get(ctx, port); err != nil {
			return nil, fmt.Errorf("read port %s of bridge %s: %w", uuid, b.Name, err)
		}

		for _, uuid := range port.Interfaces {
			iface := &vswitch.Interface{UUID: uuid}
			if err := c.db.Get(ctx, iface); err != nil {
				return nil, fmt.Errorf("read interface %s of port %s: %w", uuid, port.Name, err)
			}

			out = append(out, bridgePort{port.Name, iface})
		}
	}

	return out, nil
}
