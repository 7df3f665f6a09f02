package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// ErrForeign is returned (wrapped) for what in OVS is somebody else's, and
// must not be touched.
var ErrForeign = errors.New("not ours to change")

// CheckGateway returns nil when layout direct may have the bridge: the uplink
// is no port of OVS, neither the NIC of a bridge nor a bridge's internal port,
// and the bridge, if it is there, has only its internal port and patch ports.
// Else it returns ErrForeign (wrapped): on a node of ovn-kubernetes the bridge
// has the NIC, and the host's addresses with it.
func (c *Client) CheckGateway(ctx context.Context, uplink, bridge string) error {
	owner, err := c.bridgeWith(ctx, uplink)
	if err != nil {
		return err
	}
	if owner != "" {
		return fmt.Errorf("uplink %s is a port of OVS bridge %s: %w: layout direct wants a NIC that is not in OVS", uplink, owner, ErrForeign)
	}
	have, err := c.bridge(ctx, bridge)
	if err != nil || have == nil {
		return err
	}
	ports, err := c.bridgePorts(ctx, have)
	if err != nil {
		return err
	}
	for _, p := range ports {
		for _, i := range p.interfaces {
			if i.Name != bridge && i.Type != "patch" {
				return fmt.Errorf("OVS bridge %s has the port %s: %w: layout direct wants the bridge for itself", bridge, p.name, ErrForeign)
			}
		}
	}
	return nil
}

// bridgeWith returns the name of the bridge that has the device, "" for none.
func (c *Client) bridgeWith(ctx context.Context, device string) (string, error) {
	var bridges []*vswitch.Bridge
	if err := c.db.List(ctx, &bridges); err != nil {
		return "", fmt.Errorf("read bridges: %w", err)
	}
	for _, b := range bridges {
		ports, err := c.bridgePorts(ctx, b)
		if err != nil {
			return "", err
		}
		for _, p := range ports {
			for _, i := range p.interfaces {
				if i.Name == device || p.name == device {
					return b.Name, nil
				}
			}
		}
	}
	return "", nil
}

type bridgePort struct {
	name       string
	interfaces []*vswitch.Interface
}

func (c *Client) bridgePorts(ctx context.Context, b *vswitch.Bridge) ([]bridgePort, error) {
	var out []bridgePort
	for _, uuid := range b.Ports {
		port := &vswitch.Port{UUID: uuid}
		if err := c.db.Get(ctx, port); err != nil {
			return nil, fmt.Errorf("read port %s of bridge %s: %w", uuid, b.Name, err)
		}
		p := bridgePort{name: port.Name}
		for _, uuid := range port.Interfaces {
			iface := &vswitch.Interface{UUID: uuid}
			if err := c.db.Get(ctx, iface); err != nil {
				return nil, fmt.Errorf("read interface %s of port %s: %w", uuid, port.Name, err)
			}
			p.interfaces = append(p.interfaces, iface)
		}
		out = append(out, p)
	}
	return out, nil
}
