package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

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

func (c *Client) ofports(ctx context.Context, bridge string, match func(*vswitch.Interface) bool) (map[string]uint32, error) {
	row, err := c.bridge(ctx, bridge)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("bridge %s: %w", bridge, ErrNotFound)
	}
	ours := map[string]bool{}
	for _, id := range row.Ports {
		ours[id] = true
	}
	var ports []*vswitch.Port
	if err := c.db.WhereCache(func(p *vswitch.Port) bool { return ours[p.UUID] }).List(ctx, &ports); err != nil {
		return nil, fmt.Errorf("read ports of %s: %w", bridge, err)
	}
	used := map[string]bool{}
	for _, p := range ports {
		for _, id := range p.Interfaces {
			used[id] = true
		}
	}
	var ifaces []*vswitch.Interface
	if err := c.db.WhereCache(func(i *vswitch.Interface) bool { return used[i.UUID] && match(i) }).List(ctx, &ifaces); err != nil {
		return nil, fmt.Errorf("read interfaces of %s: %w", bridge, err)
	}
	out := map[string]uint32{}
	for _, i := range ifaces {
		if i.Ofport != nil && *i.Ofport > 0 && *i.Ofport < ofportMax {
			out[i.Name] = uint32(*i.Ofport)
		}
	}
	return out, nil
}

// ofportMax is the first reserved number of OpenFlow 1.0 (LOCAL is 65534).
const ofportMax = 0xff00
