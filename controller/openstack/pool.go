package openstack

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// Observe returns what there is of a pool, without what was published. VIFs are among it if vif is
// not nil, and so is VIFMTU as long as the pool has no network.
func (c *Client) Observe(ctx context.Context, pool string, vif *PortFilter) (cloud.Observation, error) {
	var (
		s   cloud.Observation
		err error
	)
	if s.Quotas, err = c.Quotas(ctx); err != nil {
		return s, err
	}

	if vif != nil {
		if s.VIFs, err = c.Ports(ctx, *vif); err != nil {
			return s, err
		}
	}

	if s.Networks, err = c.Networks(ctx, pool); err != nil {
		return s, err
	}

	if len(s.Networks) == 0 && len(s.VIFs) > 0 {
		if s.VIFMTU, err = c.mtu(ctx, s.VIFs[0].Network); err != nil {
			return s, err
		}
	}

	for _, n := range s.Networks {
		subnets, err := c.Subnets(ctx, n.ID)
		if err != nil {
			return s, err
		}

		ports, err := c.Ports(ctx, PortFilter{Network: n.ID})
		if err != nil {
			return s, err
		}

		s.Subnets, s.Ports = append(s.Subnets, subnets...), append(s.Ports, ports...)
	}

	s.Trunks, err = c.trunks(ctx, pool, s)

	return s, err
}

// mtu returns the MTU of a network, or 0 if the credentials may not see it.
func (c *Client) mtu(ctx context.Context, network string) (int, error) {
	found, err := c.networks(ctx, networks.ListOpts{ID: network})
	if err != nil || len(found) == 0 {
		return 0, err
	}

	return found[0].MTU, nil
}

// trunks returns the trunks on the VIFs and those with the pool's name. Where a port is in neither,
// its trunk is looked for in the whole project.
func (c *Client) trunks(ctx context.Context, pool string, s cloud.Observation) ([]cloud.Trunk, error) {
	found, err := c.Trunks(ctx, TrunkFilter{Name: pool})
	if err != nil {
		return nil, err
	}

	add := func(f TrunkFilter, wanted func(cloud.Trunk) bool) error {
		more, err := c.Trunks(ctx, f)
		for _, t := range more {
			known := slices.ContainsFunc(found, func(have cloud.Trunk) bool { return have.ID == t.ID })
			if !known && wanted(t) {
				found = append(found, t)
			}
		}

		return err
	}

	for _, v := range s.VIFs {
		if slices.ContainsFunc(found, func(t cloud.Trunk) bool { return t.Port == v.ID }) {
			continue
		}

		if err := add(TrunkFilter{Port: v.ID}, func(cloud.Trunk) bool { return true }); err != nil {
			return nil, err
		}
	}

	lost := s.Elsewhere(found)
	if len(lost) == 0 {
		return found, nil
	}

	err = add(TrunkFilter{}, func(t cloud.Trunk) bool {
		return slices.ContainsFunc(t.Subports,
			func(p cloud.Subport) bool { return slices.Contains(lost, p.Port) })
	})

	return found, err
}

// Do executes a step of a plan. The result is for Observation.After.
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
