package openstack

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// PortFilter selects the ports that match all of its fields. An empty field matches all ports.
type PortFilter struct {
	ID, Network string // UUIDs of the port, and of its network
	MAC         string
	Device      string // device_id: UUID of the VM or router that has the port
}

// Ports returns the ports that the filter selects and the credentials may see.
func (c *Client) Ports(ctx context.Context, f PortFilter) ([]cloud.Port, error) {
	o := ports.ListOpts{ID: f.ID, NetworkID: f.Network, MACAddress: f.MAC, DeviceID: f.Device}

	return list(c, "list ports", ports.List(c.network, o), ctx, ports.ExtractPorts, port)
}

// port converts a port of gophercloud.
func port(p ports.Port) (cloud.Port, error) {
	out := cloud.Port{
		ID:          p.ID,
		Name:        p.Name,
		Description: p.Description,
		Network:     p.NetworkID,
		Project:     p.ProjectID,
		MAC:         strings.ToLower(p.MACAddress),
		Device:      p.DeviceID,
		Owner:       p.DeviceOwner,
		Groups:      sorted(p.SecurityGroups),
	}
	for _, f := range p.FixedIPs {
		a, err := netip.ParseAddr(f.IPAddress)
		if err != nil {
			return out, fmt.Errorf("read port %s: %w", p.ID, err)
		}

		out.FixedIPs = append(out.FixedIPs, cloud.FixedIP{Subnet: f.SubnetID, Address: a})
	}

	return out, nil
}

// sorted returns the groups of a port in Neutron's answer. Nil stays nil: without the extension
// security-group, the answer has none, and the groups are unknown.
func sorted(groups []string) []string {
	groups = slices.Clone(groups)
	slices.SortFunc(groups, strings.Compare)

	return groups
}

// CreatePorts makes ports in one request: all of them or none. It returns them in the same order,
// with their IDs. The groups of a port must be known: without them in the request, the port would
// get the project's group "default".
func (c *Client) CreatePorts(ctx context.Context, wanted []cloud.Port) ([]cloud.Port, error) {
	const name = "create ports"

	var request struct {
		Ports []map[string]any `json:"ports"`
	}

	for _, p := range wanted {
		if p.Groups == nil {
			unknown := fmt.Errorf("groups of port %s are not known", p.Name)
			return nil, &Error{Kind: Refused, Call: name, cause: unknown}
		}

		fixed := []map[string]string{}
		for _, f := range p.FixedIPs {
			fixed = append(fixed, map[string]string{"subnet_id": f.Subnet, "ip_address": f.Address.String()})
		}

		one := map[string]any{
			"network_id": p.Network, "name": p.Name, "description": p.Description, "fixed_ips": fixed,
			"security_groups": p.Groups,
		}
		if p.MAC != "" {
			one["mac_address"] = p.MAC
		}

		request.Ports = append(request.Ports, one)
	}

	return call(c, name, func() ([]cloud.Port, error) {
		var made struct {
			Ports []ports.Port `json:"ports"`
		}

		// gophercloud has no request for several ports.
		_, err := c.network.Post(ctx, c.network.ServiceURL("ports"), request, &made,
			&gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}})
		if err != nil {
			return nil, err
		}

		return objects(made.Ports, port)
	})
}

// DeletePort deletes a port, which must be in no trunk.
func (c *Client) DeletePort(ctx context.Context, id string) error {
	return c.delete("delete port", func() error { return ports.Delete(ctx, c.network, id).ExtractErr() })
}

// SetGroups replaces the security groups of the port by these, given by their UUIDs.
func (c *Client) SetGroups(ctx context.Context, port string, groups []string) error {
	_, err := call(c, "set security groups", func() (*ports.Port, error) {
		return ports.Update(ctx, c.network, port, ports.UpdateOpts{SecurityGroups: &groups}).Extract()
	})

	return err
}

// trunk converts a trunk of gophercloud.
func trunk(t trunks.Trunk) cloud.Trunk {
	out := cloud.Trunk{ID: t.ID, Name: t.Name, Description: t.Description, Port: t.PortID}
	for _, s := range t.Subports {
		out.Subports = append(out.Subports, cloud.Subport{Port: s.PortID, Tag: s.SegmentationID})
	}

	return out
}

// TrunkFilter selects the trunks that match all of its fields. An empty field matches all trunks.
type TrunkFilter struct {
	Name string
	Port string // UUID of the parent port
}

// Trunks returns the project's trunks that the filter selects, with their subports.
func (c *Client) Trunks(ctx context.Context, f TrunkFilter) ([]cloud.Trunk, error) {
	o := trunks.ListOpts{Name: f.Name, PortID: f.Port, ProjectID: c.project}

	return list(c, "list trunks", trunks.List(c.network, o), ctx, trunks.ExtractTrunks, valid(trunk))
}

// CreateTrunk makes a trunk of the port.
func (c *Client) CreateTrunk(ctx context.Context, s cloud.CreateTrunk) (cloud.Trunk, error) {
	return create(c, "create trunk", func() (*trunks.Trunk, error) {
		o := trunks.CreateOpts{Name: s.Name, Description: s.Description, PortID: s.Port}
		return trunks.Create(ctx, c.network, o).Extract()
	}, valid(trunk))
}

// DeleteTrunk deletes a trunk.
func (c *Client) DeleteTrunk(ctx context.Context, id string) error {
	return c.delete("delete trunk", func() error { return trunks.Delete(ctx, c.network, id).ExtractErr() })
}

// AddSubports puts ports into a trunk in one request: all of them or none.
func (c *Client) AddSubports(ctx context.Context, id string, subports []cloud.Subport) error {
	var request trunks.AddSubportsOpts
	for _, s := range subports {
		request.Subports = append(request.Subports, trunks.Subport{
			PortID: s.Port, SegmentationType: "vlan", SegmentationID: s.Tag,
		})
	}

	_, err := call(c, "add subports", func() (*trunks.Trunk, error) {
		return trunks.AddSubports(ctx, c.network, id, request).Extract()
	})

	return err
}

// RemoveSubports takes ports out of a trunk in one request: all of them or none.
func (c *Client) RemoveSubports(ctx context.Context, id string, ids []string) error {
	var request trunks.RemoveSubportsOpts
	for _, port := range ids {
		request.Subports = append(request.Subports, trunks.RemoveSubport{PortID: port})
	}

	_, err := call(c, "remove subports", func() (*trunks.Trunk, error) {
		return trunks.RemoveSubports(ctx, c.network, id, request).Extract()
	})

	return err
}
