package cloud_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

var (
	errConflict = errors.New("conflict")
	errQuota    = errors.New("over quota")
	errGone     = errors.New("not found")
)

// standin is a project with the rules of Neutron that plans depend on. test/cloud executes the same
// plans at a real Neutron.
type standin struct {
	seen cloud.Seen
	last map[string]int // by the first letter of IDs
	mtu  int
	next uint32 // address of the subnet pool's next subnet
	six  byte
}

func newStandin(vif cloud.Port) *standin {
	none := cloud.Quota{Limit: -1}
	return &standin{
		seen: cloud.Seen{
			VIFs:   []cloud.Port{vif},
			Quotas: cloud.Quotas{Networks: none, Subnets: none, Ports: none, Trunks: none},
		},
		last: map[string]int{}, mtu: 1442, next: 10<<24 | 244<<16,
	}
}

func (c *standin) id(kind string) string {
	c.last[kind]++
	return fmt.Sprint(kind, c.last[kind])
}

// do executes a step as Neutron does: completely or not at all.
func (c *standin) do(step cloud.Step) error {
	r, err := c.result(step)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	q := c.seen.After(step, r).Quotas
	for _, q := range []cloud.Quota{q.Networks, q.Subnets, q.Ports, q.Trunks} {
		if q.Limit >= 0 && q.Used > q.Limit {
			return fmt.Errorf("%s: %w", step, errQuota)
		}
	}
	c.seen = c.seen.After(step, r)
	c.own(step)
	return nil
}

// own gives subports their device owner, as Neutron does.
func (c *standin) own(step cloud.Step) {
	set := func(id, owner string) {
		for i := range c.seen.Ports {
			if c.seen.Ports[i].ID == id {
				c.seen.Ports[i].Owner = owner
			}
		}
	}
	c.seen.Ports = slices.Clone(c.seen.Ports)
	switch step := step.(type) {
	case cloud.AddSubports:
		for _, s := range step.Subports {
			set(s.Port, "trunk:subport")
		}
	case cloud.RemoveSubports:
		for _, id := range step.Ports {
			set(id, "")
		}
	}
}

func (c *standin) result(step cloud.Step) (cloud.Result, error) {
	var r cloud.Result
	switch step := step.(type) {
	case cloud.CreateNetwork:
		r.Network = cloud.Network{ID: c.id("n"), Name: step.Name, Description: step.Description, MTU: c.mtu}
	case cloud.CreateSubnet:
		r.Subnet = cloud.Subnet{ID: c.id("s"), Name: step.Name, Network: step.Network, Prefix: c.prefix(step)}
		r.Subnet.Gateway = r.Subnet.Prefix.Addr().Next()
	case cloud.CreateTrunk:
		if slices.ContainsFunc(c.seen.Trunks, func(t cloud.Trunk) bool { return t.Port == step.Port }) {
			return r, errConflict
		}
		r.Trunk = cloud.Trunk{ID: c.id("t"), Name: step.Name, Description: step.Description, Port: step.Port}
	case cloud.AddInterface:
		return c.addInterface(step)
	case cloud.CreatePorts:
		return c.createPorts(step)
	case cloud.AddSubports:
		return r, c.addSubports(step)
	case cloud.DeletePort:
		return r, c.deletable(step.Port)
	case cloud.DeleteNetwork:
		for _, p := range c.seen.Ports {
			if p.Network == step.Network {
				return r, errConflict
			}
		}
	}
	return r, nil
}

func (c *standin) prefix(step cloud.CreateSubnet) netip.Prefix {
	if step.IPv6 {
		c.six++
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 5: 0x10, 7: c.six}), step.Length)
	}
	size := uint32(1) << (32 - step.Length)
	c.next = (c.next + size - 1) / size * size
	a := netip.AddrFrom4([4]byte{byte(c.next >> 24), byte(c.next >> 16), byte(c.next >> 8), byte(c.next)})
	c.next += size
	return netip.PrefixFrom(a, step.Length)
}

func (c *standin) addInterface(step cloud.AddInterface) (cloud.Result, error) {
	for _, n := range c.seen.Subnets {
		if n.ID == step.Subnet {
			p := cloud.Port{
				ID: c.id("p"), Network: n.Network, Device: step.Router, Owner: "network:router_interface",
				Fixed: []cloud.Fixed{{Subnet: n.ID, Address: n.Gateway}},
			}
			p.MAC = c.mac()
			return cloud.Result{Ports: []cloud.Port{p}}, c.free(p)
		}
	}
	return cloud.Result{}, errGone
}

func (c *standin) createPorts(step cloud.CreatePorts) (cloud.Result, error) {
	var r cloud.Result
	if len(step.Ports) > cloud.Batch {
		return r, fmt.Errorf("%d ports in a request", len(step.Ports))
	}
	for _, p := range step.Ports {
		if err := c.free(p); err != nil {
			return r, err
		}
	}
	for _, p := range step.Ports {
		p.ID = c.id("p")
		if p.MAC == "" {
			p.MAC = c.mac()
		}
		r.Ports = append(r.Ports, p)
	}
	return r, nil
}

// free reports a conflict if a port of the network has one of p's addresses, or its MAC.
func (c *standin) free(p cloud.Port) error {
	for _, have := range c.seen.Ports {
		if have.Network == p.Network && (have.MAC == p.MAC ||
			slices.ContainsFunc(p.Fixed, func(f cloud.Fixed) bool { return slices.Contains(have.Fixed, f) })) {
			return errConflict
		}
	}
	return nil
}

func (c *standin) addSubports(step cloud.AddSubports) error {
	for _, s := range step.Subports {
		for _, t := range c.seen.Trunks {
			for _, have := range t.Subports {
				if have.Port == s.Port || t.ID == step.Trunk && have.Tag == s.Tag {
					return errConflict
				}
			}
		}
		if !slices.ContainsFunc(c.seen.Ports, func(p cloud.Port) bool { return p.ID == s.Port }) {
			return errGone
		}
	}
	return nil
}

func (c *standin) deletable(port string) error {
	for _, t := range c.seen.Trunks {
		if slices.ContainsFunc(t.Subports, func(s cloud.Subport) bool { return s.Port == port }) {
			return errConflict
		}
	}
	return nil
}

// mac returns the MAC of the port that was made last: its number.
func (c *standin) mac() string {
	n := c.last["p"]
	return fmt.Sprintf("fa:16:3e:00:%02x:%02x", n>>8, n&255)
}
