package openstack

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/common/extensions"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/subnetpools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// ObserveSetup returns the objects from which the setup is planned: see cloud.SetupObservation. If
// Neutron lacks an extension that the setup needs, ObserveSetup returns the extensions only.
func (c *Client) ObserveSetup(ctx context.Context, s cloud.Setup) (cloud.SetupObservation, error) {
	var (
		seen cloud.SetupObservation
		err  error
	)
	if seen.Extensions, err = c.Extensions(ctx); err != nil {
		return seen, err
	}

	if len(cloud.MissingExtensions(seen.Extensions)) > 0 {
		return seen, nil
	}

	if seen.Quotas, err = c.Quotas(ctx); err != nil {
		return seen, err
	}

	if seen.Networks, err = c.networks(ctx, networks.ListOpts{}); err != nil {
		return seen, err
	}

	if seen.Subnets, err = c.subnets(ctx, subnets.ListOpts{ProjectID: c.project}); err != nil {
		return seen, err
	}

	if err := c.observeVMNetwork(ctx, s, &seen); err != nil {
		return seen, err
	}

	if seen.SubnetPools, err = c.subnetPools(ctx, s.SubnetPool, s.SubnetPool6); err != nil {
		return seen, err
	}

	if seen.SecurityGroups, err = c.securityGroups(ctx, s.Groups); err != nil {
		return seen, err
	}

	return seen, c.observeRouter(ctx, s, &seen)
}

// observeVMNetwork adds the subnets and ports of the VMs' network.
func (c *Client) observeVMNetwork(ctx context.Context, s cloud.Setup, seen *cloud.SetupObservation) error {
	for _, n := range seen.Networks {
		if n.ID != s.VMNetwork && n.Name != s.VMNetwork {
			continue
		}

		if n.Project != c.project { // otherwise, seen has its subnets already
			more, err := c.Subnets(ctx, n.ID)
			if err != nil {
				return err
			}

			seen.Subnets = append(seen.Subnets, more...)
		}

		ports, err := c.Ports(ctx, PortFilter{Network: n.ID})
		if err != nil {
			return err
		}

		seen.Ports = append(seen.Ports, ports...)
	}

	return nil
}

// observeRouter adds the project's routers, those of the VMs' network, and the ports of the setup's
// router.
func (c *Client) observeRouter(ctx context.Context, s cloud.Setup, seen *cloud.SetupObservation) error {
	var err error
	if seen.Routers, err = c.routers(ctx, routers.ListOpts{ProjectID: c.project}); err != nil {
		return err
	}

	// A candidate may be of another project, which the plan reports.
	for _, id := range s.RouterCandidates(*seen) {
		if slices.ContainsFunc(seen.Routers, func(r cloud.Router) bool { return r.ID == id }) {
			continue
		}

		more, err := c.routers(ctx, routers.ListOpts{ID: id})
		if err != nil {
			return err
		}

		seen.Routers = append(seen.Routers, more...)
	}

	id := s.RouterID(*seen)
	if id == "" {
		return nil
	}

	ports, err := c.Ports(ctx, PortFilter{Device: id})
	for _, p := range ports {
		if !slices.ContainsFunc(seen.Ports, func(have cloud.Port) bool { return have.ID == p.ID }) {
			seen.Ports = append(seen.Ports, p)
		}
	}

	return err
}

// Extensions returns the aliases of Neutron's extensions.
func (c *Client) Extensions(ctx context.Context) ([]string, error) {
	return list(c, "list extensions", extensions.List(c.network), ctx, extensions.ExtractExtensions,
		func(e extensions.Extension) (string, error) { return e.Alias, nil })
}

// routers returns the routers that the options select.
func (c *Client) routers(ctx context.Context, o routers.ListOpts) ([]cloud.Router, error) {
	return list(c, "list routers", routers.List(c.network, o), ctx, routers.ExtractRouters, valid(router))
}

// router converts a router of gophercloud.
func router(r routers.Router) cloud.Router {
	return cloud.Router{
		ID: r.ID, Name: r.Name, Description: r.Description, Project: r.ProjectID,
		External: r.GatewayInfo.NetworkID,
	}
}

// CreateRouter makes a router of the project.
func (c *Client) CreateRouter(ctx context.Context, s cloud.CreateRouter) (cloud.Router, error) {
	return create(c, "create router", func() (*routers.Router, error) {
		o := routers.CreateOpts{Name: s.Name, Description: s.Description}
		if s.External != "" {
			o.GatewayInfo = &routers.GatewayInfo{NetworkID: s.External}
		}

		return routers.Create(ctx, c.network, o).Extract()
	}, valid(router))
}

// SetGateway gives the router its external gateway in the network.
func (c *Client) SetGateway(ctx context.Context, id, network string) error {
	_, err := call(c, "set external gateway", func() (*routers.Router, error) {
		o := routers.UpdateOpts{GatewayInfo: &routers.GatewayInfo{NetworkID: network}}
		return routers.Update(ctx, c.network, id, o).Extract()
	})

	return err
}

// subnetPools returns the project's subnet pools, and those with the IDs.
func (c *Client) subnetPools(ctx context.Context, ids ...string) ([]cloud.SubnetPool, error) {
	get := func(project, id string) ([]cloud.SubnetPool, error) {
		o := subnetpools.ListOpts{ProjectID: project, ID: id}

		return list(c, "list subnet pools", subnetpools.List(c.network, o), ctx,
			subnetpools.ExtractSubnetPools, subnetPool)
	}

	return withIDs(c.project, ids, get, func(p cloud.SubnetPool) string { return p.ID })
}

// subnetPool converts a subnet pool of gophercloud.
func subnetPool(p subnetpools.SubnetPool) (cloud.SubnetPool, error) {
	out := cloud.SubnetPool{
		ID: p.ID, Name: p.Name, Description: p.Description, Project: p.ProjectID,
		Shortest: p.MinPrefixLen, Longest: p.MaxPrefixLen,
	}
	for _, text := range p.Prefixes {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return out, fmt.Errorf("read subnet pool %s: %w", p.ID, err)
		}

		out.Prefixes = append(out.Prefixes, prefix)
	}

	return out, nil
}

// CreateSubnetPool makes a subnet pool of the project.
func (c *Client) CreateSubnetPool(
	ctx context.Context, s cloud.CreateSubnetPool,
) (cloud.SubnetPool, error) {
	return create(c, "create subnet pool", func() (*subnetpools.SubnetPool, error) {
		return subnetpools.Create(ctx, c.network, subnetpools.CreateOpts{
			Name: s.Name, Description: s.Description, Prefixes: []string{s.Prefix.String()},
			MinPrefixLen: s.Shortest, DefaultPrefixLen: s.Default, MaxPrefixLen: s.Longest,
		}).Extract()
	}, subnetPool)
}

// securityGroups returns the project's security groups, and those with the IDs.
func (c *Client) securityGroups(ctx context.Context, ids []string) ([]cloud.SecurityGroup, error) {
	get := func(project, id string) ([]cloud.SecurityGroup, error) {
		o := groups.ListOpts{ProjectID: project, ID: id}

		return list(c, "list security groups", groups.List(c.network, o), ctx, groups.ExtractGroups,
			valid(securityGroup))
	}

	return withIDs(c.project, ids, get, func(g cloud.SecurityGroup) string { return g.ID })
}

// securityGroup converts a security group of gophercloud. Of its rules, it keeps those that allow
// everything.
func securityGroup(g groups.SecGroup) cloud.SecurityGroup {
	out := cloud.SecurityGroup{
		ID: g.ID, Name: g.Name, Description: g.Description, Project: g.ProjectID,
	}
	for _, r := range g.Rules {
		if allowsAll(r) {
			out.Open = append(out.Open, cloud.Rule{Direction: r.Direction, EtherType: r.EtherType})
		}
	}

	return out
}

// allowsAll reports whether the rule allows all packets of its direction and family.
func allowsAll(r rules.SecGroupRule) bool {
	anywhere := r.RemoteIPPrefix == "" || strings.HasSuffix(r.RemoteIPPrefix, "/0")

	return r.Protocol == "" && r.PortRangeMin == 0 && r.PortRangeMax == 0 &&
		r.RemoteGroupID == "" && r.RemoteAddressGroupID == "" && anywhere
}

// CreateSecurityGroup makes a security group of the project, with the rules that Neutron gives it.
func (c *Client) CreateSecurityGroup(
	ctx context.Context, name, description string,
) (cloud.SecurityGroup, error) {
	return create(c, "create security group", func() (*groups.SecGroup, error) {
		o := groups.CreateOpts{Name: name, Description: description}
		return groups.Create(ctx, c.network, o).Extract()
	}, valid(securityGroup))
}

// CreateRule adds a rule that allows all packets of its direction and family to a security group.
func (c *Client) CreateRule(ctx context.Context, group string, r cloud.Rule) error {
	_, err := call(c, "create security group rule", func() (*rules.SecGroupRule, error) {
		return rules.Create(ctx, c.network, rules.CreateOpts{
			SecGroupID: group,
			Direction:  rules.RuleDirection(r.Direction),
			EtherType:  rules.RuleEtherType(r.EtherType),
		}).Extract()
	})

	return err
}
