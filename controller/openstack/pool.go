package openstack

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// Observe returns the pool's objects in Neutron. Published stays empty. If vif is not nil, Observe
// also returns the ports that it selects, as VIFs. If the pool has no network yet, it then also
// returns the MTU of the first VIF's network.
func (c *Client) Observe(ctx context.Context, pool string, vif *PortFilter) (cloud.Observation, error) {
	var (
		seen cloud.Observation
		err  error
	)
	if seen.Quotas, err = c.Quotas(ctx); err != nil {
		return seen, err
	}

	if vif != nil {
		if seen.VIFs, err = c.Ports(ctx, *vif); err != nil {
			return seen, err
		}
	}

	if seen.Networks, err = c.Networks(ctx, pool); err != nil {
		return seen, err
	}

	if len(seen.Networks) == 0 && len(seen.VIFs) > 0 {
		if seen.VIFMTU, err = c.mtu(ctx, seen.VIFs[0].Network); err != nil {
			return seen, err
		}
	}

	for _, n := range seen.Networks {
		subnets, err := c.Subnets(ctx, n.ID)
		if err != nil {
			return seen, err
		}

		ports, err := c.Ports(ctx, PortFilter{Network: n.ID})
		if err != nil {
			return seen, err
		}

		seen.Subnets, seen.Ports = append(seen.Subnets, subnets...), append(seen.Ports, ports...)
	}

	seen.Trunks, err = c.trunks(ctx, pool, seen)

	return seen, err
}

// mtu returns the MTU of a network, or 0 if the credentials may not see it.
func (c *Client) mtu(ctx context.Context, network string) (int, error) {
	found, err := c.networks(ctx, networks.ListOpts{ID: network})
	if err != nil || len(found) == 0 {
		return 0, err
	}

	return found[0].MTU, nil
}

// trunks returns the trunks with the pool's name and the trunks on the VIFs. If a subport of the
// pool is in none of these, trunks searches all trunks of the project for it.
func (c *Client) trunks(ctx context.Context, pool string, seen cloud.Observation) ([]cloud.Trunk, error) {
	found, err := c.Trunks(ctx, TrunkFilter{Name: pool})
	if err != nil {
		return nil, err
	}

	addMissing := func(f TrunkFilter, wanted func(cloud.Trunk) bool) error {
		more, err := c.Trunks(ctx, f)
		for _, t := range more {
			known := slices.ContainsFunc(found, func(have cloud.Trunk) bool { return have.ID == t.ID })
			if !known && wanted(t) {
				found = append(found, t)
			}
		}

		return err
	}

	for _, v := range seen.VIFs {
		if slices.ContainsFunc(found, func(t cloud.Trunk) bool { return t.Port == v.ID }) {
			continue
		}

		if err := addMissing(TrunkFilter{Port: v.ID}, func(cloud.Trunk) bool { return true }); err != nil {
			return nil, err
		}
	}

	strayPorts := seen.Elsewhere(found)
	if len(strayPorts) == 0 {
		return found, nil
	}

	err = addMissing(TrunkFilter{}, func(t cloud.Trunk) bool {
		return slices.ContainsFunc(t.Subports,
			func(p cloud.Subport) bool { return slices.Contains(strayPorts, p.Port) })
	})

	return found, err
}

// Do executes a step of a plan. The result has the objects that Neutron made, for
// Observation.After.
func (c *Client) Do(ctx context.Context, step cloud.Step) (cloud.Result, error) {
	var (
		r   cloud.Result
		err error
	)

	switch step := step.(type) {
	case cloud.CreateNetwork:
		r.Network, err = c.CreateNetwork(ctx, step.Name, step.Description)
	case cloud.CreateSubnet:
		r.Subnet, err = c.CreateSubnet(ctx, step)
	case cloud.AddInterface:
		var id string
		if id, err = c.AddInterface(ctx, step.Router, step.Subnet); err == nil {
			r.Ports, err = c.Ports(ctx, PortFilter{ID: id}) // for its MAC
		}
	case cloud.CreateTrunk:
		r.Trunk, err = c.CreateTrunk(ctx, step)
	case cloud.CreatePorts:
		r.Ports, err = c.CreatePorts(ctx, step.Ports)
	case cloud.AddSubports:
		err = c.AddSubports(ctx, step.Trunk, step.Subports)
	case cloud.RemoveSubports:
		err = c.RemoveSubports(ctx, step.Trunk, step.Ports)
	case cloud.DeletePort:
		err = c.DeletePort(ctx, step.Port)
	case cloud.RemoveInterface:
		err = c.RemoveInterface(ctx, step.Router, step.Subnet)
	case cloud.DeleteSubnet:
		err = c.DeleteSubnet(ctx, step.Subnet)
	case cloud.DeleteTrunk:
		err = c.DeleteTrunk(ctx, step.Trunk)
	case cloud.DeleteNetwork:
		err = c.DeleteNetwork(ctx, step.Network)
	case cloud.CreateRouter:
		r.Router, err = c.CreateRouter(ctx, step)
	case cloud.SetGateway:
		err = c.SetGateway(ctx, step.Router, step.Network)
	case cloud.CreateSubnetPool:
		r.SubnetPool, err = c.CreateSubnetPool(ctx, step)
	case cloud.CreateSecurityGroup:
		r.SecurityGroup, err = c.CreateSecurityGroup(ctx, step.Name, step.Description)
	case cloud.CreateRule:
		err = c.CreateRule(ctx, step.Group, step.Rule)
	default:
		err = fmt.Errorf("execute step %T: not known", step)
	}

	return r, err
}
