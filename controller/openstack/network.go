package openstack

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/mtu"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// network is a network of gophercloud with the attributes of two extensions.
type network struct {
	networks.Network
	mtu.NetworkMTUExt
	external.NetworkExternalExt
}

// object converts a network of gophercloud.
func (n network) object() cloud.Network {
	return cloud.Network{
		ID:          n.ID,
		Name:        n.Name,
		Description: n.Description,
		Project:     n.ProjectID,
		MTU:         n.MTU,
		External:    n.External,
	}
}

// Networks returns the networks of the project that have the name.
func (c *Client) Networks(ctx context.Context, name string) ([]cloud.Network, error) {
	return c.networks(ctx, networks.ListOpts{Name: name, ProjectID: c.project})
}

func (c *Client) networks(ctx context.Context, o networks.ListOpts) ([]cloud.Network, error) {
	extract := func(page pagination.Page) ([]network, error) {
		var all []network

		err := networks.ExtractNetworksInto(page, &all)

		return all, err
	}

	return list(c, "list networks", networks.List(c.network, o), ctx, extract, valid(network.object))
}

// CreateNetwork makes a network of the project.
func (c *Client) CreateNetwork(ctx context.Context, name, description string) (cloud.Network, error) {
	return call(c, "create network", func() (cloud.Network, error) {
		var n network

		opts := networks.CreateOpts{Name: name, Description: description}
		err := networks.Create(ctx, c.network, opts).ExtractInto(&n)

		return n.object(), err
	})
}

// DeleteNetwork deletes a network and its subnets.
func (c *Client) DeleteNetwork(ctx context.Context, id string) error {
	return c.delete("delete network",
		func() error { return networks.Delete(ctx, c.network, id).ExtractErr() })
}

// subnet converts a subnet of gophercloud.
func subnet(n subnets.Subnet) (cloud.Subnet, error) {
	out := cloud.Subnet{ID: n.ID, Name: n.Name, Network: n.NetworkID, SubnetPool: n.SubnetPoolID}

	var err error
	if out.Prefix, err = netip.ParsePrefix(n.CIDR); err != nil {
		return out, fmt.Errorf("read subnet %s: %w", n.ID, err)
	}

	if n.GatewayIP != "" {
		if out.Gateway, err = netip.ParseAddr(n.GatewayIP); err != nil {
			return out, fmt.Errorf("read subnet %s: %w", n.ID, err)
		}
	}

	return out, nil
}

// Subnets returns the subnets of a network.
func (c *Client) Subnets(ctx context.Context, network string) ([]cloud.Subnet, error) {
	return c.subnets(ctx, subnets.ListOpts{NetworkID: network})
}

func (c *Client) subnets(ctx context.Context, o subnets.ListOpts) ([]cloud.Subnet, error) {
	return list(c, "list subnets", subnets.List(c.network, o), ctx, subnets.ExtractSubnets, subnet)
}

// CreateSubnet makes a subnet of a prefix that Neutron takes from a subnet pool, without DHCP.
func (c *Client) CreateSubnet(ctx context.Context, s cloud.CreateSubnet) (cloud.Subnet, error) {
	version, dhcp := gophercloud.IPv4, false
	if s.IPv6 {
		version = gophercloud.IPv6
	}

	return create(c, "create subnet", func() (*subnets.Subnet, error) {
		return subnets.Create(ctx, c.network, subnets.CreateOpts{
			NetworkID: s.Network, Name: s.Name, IPVersion: version,
			SubnetPoolID: s.SubnetPool, Prefixlen: s.Length, EnableDHCP: &dhcp,
		}).Extract()
	}, subnet)
}

// DeleteSubnet deletes a subnet that no port uses.
func (c *Client) DeleteSubnet(ctx context.Context, id string) error {
	return c.delete("delete subnet", func() error { return subnets.Delete(ctx, c.network, id).ExtractErr() })
}

// AddInterface gives the router the subnet's gateway address. It returns the ID of the port.
func (c *Client) AddInterface(ctx context.Context, router, subnet string) (string, error) {
	return create(c, "add router interface", func() (*routers.InterfaceInfo, error) {
		o := routers.AddInterfaceOpts{SubnetID: subnet}
		return routers.AddInterface(ctx, c.network, router, o).Extract()
	}, valid(func(i routers.InterfaceInfo) string { return i.PortID }))
}

// RemoveInterface takes the router out of the subnet.
func (c *Client) RemoveInterface(ctx context.Context, router, subnet string) error {
	return c.delete("remove router interface", func() error {
		opts := routers.RemoveInterfaceOpts{SubnetID: subnet}
		_, err := routers.RemoveInterface(ctx, c.network, router, opts).Extract()

		return err
	})
}

// Quotas returns the project's limits and what it uses of them, with what is reserved.
func (c *Client) Quotas(ctx context.Context) (cloud.Quotas, error) {
	return call(c, "get quotas", func() (cloud.Quotas, error) {
		var all struct {
			Quota map[string]quotas.QuotaDetail `json:"quota"`
		}
		if err := quotas.GetDetail(ctx, c.network, c.project).ExtractInto(&all); err != nil {
			return cloud.Quotas{}, err
		}

		quota := func(resource string) cloud.Quota {
			q, exists := all.Quota[resource]
			if !exists { // not every Neutron has all of these quotas
				return cloud.Quota{Limit: -1}
			}

			return cloud.Quota{Limit: q.Limit, Used: q.Used + q.Reserved}
		}

		return cloud.Quotas{
			Networks:       quota("network"),
			Subnets:        quota("subnet"),
			Ports:          quota("port"),
			Trunks:         quota("trunk"),
			Routers:        quota("router"),
			SubnetPools:    quota("subnetpool"),
			SecurityGroups: quota("security_group"),
			Rules:          quota("security_group_rule"),
		}, nil
	})
}
