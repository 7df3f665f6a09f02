// Package cloudtest has a stand-in for Neutron, for tests of pools' plans and of their execution.
// test/cloud executes the same plans at a real Neutron.
package cloudtest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// failure returns an error of that kind, as openstack.Client would.
func failure(kind openstack.Kind) error { return &openstack.Error{Kind: kind, Call: "stand-in"} }

// Neutron is a project with the rules of Neutron that plans depend on: quotas, conflicts of
// addresses, MACs and tags, and the order of deletions. It implements underlay.Neutron. Its methods
// may be called concurrently. While they may be, Seen must be used inside of With only.
type Neutron struct {
	Seen cloud.Observation // all objects of the project
	// ID returns the ID of the n-th object of a kind: n(etwork), s(ubnet), t(runk) or p(ort).
	ID func(kind string, n int) string

	MTU int // of networks, bytes

	mu   sync.Mutex     // guards all but ID and MTU
	last map[string]int // number of objects made so far, by kind
	next uint32         // address of the IPv4 subnet pool's next subnet
	six  byte           // number of IPv6 subnets made so far
}

// New returns a project with VIFs, and without quotas. Its IPv4 subnets are from 10.244.0.0 on.
func New(vifs ...cloud.Port) *Neutron {
	none := cloud.Quota{Limit: -1}

	return &Neutron{
		Seen: cloud.Observation{
			VIFs:   vifs,
			Quotas: cloud.Quotas{Networks: none, Subnets: none, Ports: none, Trunks: none},
		},
		ID:   func(kind string, n int) string { return fmt.Sprint(kind, n) },
		MTU:  1442,
		last: map[string]int{}, next: 10<<24 | 244<<16,
	}
}

// With calls f with all objects of the project, which f may change. Other methods wait meanwhile.
func (c *Neutron) With(f func(*cloud.Observation)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	f(&c.Seen)
}

// UUID is an ID for Neutron.ID that has the form of Neutron's IDs.
func UUID(kind string, n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind[0], n)
}

// Observe returns the objects of a pool, as openstack.Client does.
func (c *Neutron) Observe(_ context.Context, pool string, vif *openstack.PortFilter) (cloud.Observation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := cloud.Observation{Quotas: c.Seen.Quotas}

	wanted := map[string]bool{} // VIFs and ports of the pool

	for _, v := range c.Seen.VIFs {
		if vif != nil && (vif.ID == v.ID || vif.ID == "" && vif.MAC == v.MAC) {
			out.VIFs = append(out.VIFs, v)
			wanted[v.ID] = true
		}
	}

	networks := map[string]bool{}

	for _, n := range c.Seen.Networks {
		if n.Name == pool {
			out.Networks = append(out.Networks, n)
			networks[n.ID] = true
		}
	}

	out.Subnets = slices.DeleteFunc(slices.Clone(c.Seen.Subnets),
		func(n cloud.Subnet) bool { return !networks[n.Network] })
	if len(out.Networks) == 0 && len(out.VIFs) > 0 {
		out.VIFMTU = c.MTU
	}

	for _, p := range c.Seen.Ports {
		if networks[p.Network] {
			out.Ports = append(out.Ports, p)
			wanted[p.ID] = true
		}
	}

	for _, t := range c.Seen.Trunks {
		has := slices.ContainsFunc(t.Subports, func(s cloud.Subport) bool { return wanted[s.Port] })
		if t.Name == pool || wanted[t.Port] || has {
			out.Trunks = append(out.Trunks, t)
		}
	}

	return out, nil
}

// id returns the ID of a new object.
func (c *Neutron) id(kind string) string {
	c.last[kind]++
	return c.ID(kind, c.last[kind])
}

// Do executes a step as Neutron does: completely or not at all.
func (c *Neutron) Do(_ context.Context, step cloud.Step) (cloud.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	r, err := c.do(step)
	if err != nil {
		return cloud.Result{}, fmt.Errorf("%s: %w", step, err)
	}

	return r, nil
}

// do executes a step: it finds the result, checks the quotas, and stores the changes.
func (c *Neutron) do(step cloud.Step) (cloud.Result, error) {
	r, err := c.result(step)
	if err != nil {
		return r, err
	}

	q := c.Seen.After(step, r).Quotas
	for _, q := range []cloud.Quota{q.Networks, q.Subnets, q.Ports, q.Trunks} {
		if q.Limit >= 0 && q.Used > q.Limit {
			return r, failure(openstack.Quota)
		}
	}

	c.Seen = c.Seen.After(step, r)
	c.setOwner(step)

	return r, nil
}

// setOwner gives ports their device owner when they become subports, and removes it afterwards, as
// Neutron does.
func (c *Neutron) setOwner(step cloud.Step) {
	set := func(id, owner string) {
		for i := range c.Seen.Ports {
			if c.Seen.Ports[i].ID == id {
				c.Seen.Ports[i].Owner = owner
			}
		}
	}

	c.Seen.Ports = slices.Clone(c.Seen.Ports)

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

// result returns the objects that a step makes, or why Neutron refuses the step.
func (c *Neutron) result(step cloud.Step) (cloud.Result, error) {
	var r cloud.Result

	switch step := step.(type) {
	case cloud.CreateNetwork:
		r.Network = cloud.Network{ID: c.id("n"), Name: step.Name, Description: step.Description, MTU: c.MTU}
	case cloud.CreateSubnet:
		r.Subnet = cloud.Subnet{ID: c.id("s"), Name: step.Name, Network: step.Network, Prefix: c.prefix(step)}
		r.Subnet.Gateway = r.Subnet.Prefix.Addr().Next()
	case cloud.CreateTrunk:
		if slices.ContainsFunc(c.Seen.Trunks, func(t cloud.Trunk) bool { return t.Port == step.Port }) {
			return r, failure(openstack.Conflict)
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
		for _, p := range c.Seen.Ports {
			if p.Network == step.Network {
				return r, failure(openstack.Conflict)
			}
		}
	}

	return r, nil
}

// prefix returns the next free prefix of the subnet pool. An IPv4 prefix begins at a multiple of
// its size.
func (c *Neutron) prefix(step cloud.CreateSubnet) netip.Prefix {
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

func (c *Neutron) addInterface(step cloud.AddInterface) (cloud.Result, error) {
	for _, n := range c.Seen.Subnets {
		if n.ID == step.Subnet {
			p := cloud.Port{
				ID: c.id("p"), Network: n.Network, Device: step.Router, Owner: "network:router_interface",
				FixedIPs: []cloud.FixedIP{{Subnet: n.ID, Address: n.Gateway}},
			}
			p.MAC = c.mac()

			return cloud.Result{Ports: []cloud.Port{p}}, c.free(p)
		}
	}

	return cloud.Result{}, failure(openstack.Gone)
}

func (c *Neutron) createPorts(step cloud.CreatePorts) (cloud.Result, error) {
	var r cloud.Result
	if len(step.Ports) > cloud.Batch {
		return r, fmt.Errorf("%d ports in a request", len(step.Ports))
	}

	for _, p := range step.Ports {
		if p.Groups == nil { // openstack.Client refuses it, too
			return r, fmt.Errorf("groups of port %s are not known", p.Name)
		}

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

// free returns a conflict if a port of the network has one of p's addresses, or its MAC.
func (c *Neutron) free(p cloud.Port) error {
	for _, have := range c.Seen.Ports {
		sharesAddress := slices.ContainsFunc(p.FixedIPs,
			func(f cloud.FixedIP) bool { return slices.Contains(have.FixedIPs, f) })

		if have.Network == p.Network && (have.MAC == p.MAC || sharesAddress) {
			return failure(openstack.Conflict)
		}
	}

	return nil
}

// addSubports returns a conflict if a port is in a trunk already, or if its tag is in use in this
// trunk.
func (c *Neutron) addSubports(step cloud.AddSubports) error {
	for _, s := range step.Subports {
		for _, t := range c.Seen.Trunks {
			for _, have := range t.Subports {
				if have.Port == s.Port || t.ID == step.Trunk && have.Tag == s.Tag {
					return failure(openstack.Conflict)
				}
			}
		}

		if !slices.ContainsFunc(c.Seen.Ports, func(p cloud.Port) bool { return p.ID == s.Port }) {
			return failure(openstack.Gone)
		}
	}

	return nil
}

// deletable returns a conflict if the port is in a trunk.
func (c *Neutron) deletable(port string) error {
	for _, t := range c.Seen.Trunks {
		if slices.ContainsFunc(t.Subports, func(s cloud.Subport) bool { return s.Port == port }) {
			return failure(openstack.Conflict)
		}
	}

	return nil
}

// mac returns the MAC of the port that was made last: its number.
func (c *Neutron) mac() string {
	n := c.last["p"]
	return fmt.Sprintf("fa:16:3e:00:%02x:%02x", n>>8, n&255)
}
