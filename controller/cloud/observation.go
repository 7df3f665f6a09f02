package cloud

import (
	"slices"
)

// Observation is the observed state of a pool. This package does not modify it, nor what its slices
// have.
type Observation struct {
	VIFs      []Port    // ports that may be the node's VIF: by its ID, or by its MAC
	VIFMTU    int       // of the network of the first VIF, bytes; 0 if it was not observed
	Networks  []Network // with the pool's name
	Subnets   []Subnet  // of Networks
	Ports     []Port    // of Networks, Neutron's own too
	Trunks    []Trunk   // on VIFs, with the pool's name, or with a port of Ports
	Quotas    Quotas
	Published []Line // that were published to the node last
}

// Result has the objects that a step has made, as Neutron returned them. The others are zero.
type Result struct {
	Network Network
	Subnet  Subnet
	Trunk   Trunk
	Ports   []Port // of CreatePorts, or the router's port of AddInterface

	Router        Router
	SubnetPool    SubnetPool
	SecurityGroup SecurityGroup
}

// After returns the state after a step that succeeded with this result. So a plan can continue
// without another observation.
func (s Observation) After(step Step, r Result) Observation {
	switch step := step.(type) {
	case CreateNetwork:
		s.Networks = append(slices.Clip(s.Networks), r.Network)
		s.Quotas.Networks.Used++
		s.Quotas.Ports.Used++ // of OVN's metadata, for which Neutron makes a port if it is enabled
	case CreateSubnet:
		s.Subnets = append(slices.Clip(s.Subnets), r.Subnet)
		s.Quotas.Subnets.Used++
	case CreateTrunk:
		s.Trunks = append(slices.Clip(s.Trunks), r.Trunk)
		s.Quotas.Trunks.Used++
	case AddInterface, CreatePorts:
		s.Ports = append(slices.Clip(s.Ports), r.Ports...)
		s.Quotas.Ports.Used += len(r.Ports)
	case AddSubports:
		s.Trunks = withSubports(s.Trunks, step.Trunk, func(have []Subport) []Subport {
			return append(slices.Clip(have), step.Subports...)
		})
	case RemoveSubports:
		s.Trunks = withSubports(s.Trunks, step.Trunk, func(have []Subport) []Subport {
			return without(have, func(p Subport) bool { return slices.Contains(step.Ports, p.Port) })
		})
	case DeletePort:
		s.Ports = without(s.Ports, func(p Port) bool { return p.ID == step.Port })
		s.Quotas.Ports.Used--
	case RemoveInterface:
		s.Ports = without(s.Ports, func(p Port) bool { return p.isRouter() && p.in(step.Subnet) })
		s.Quotas.Ports.Used--
	case DeleteSubnet:
		s.Subnets = without(s.Subnets, func(n Subnet) bool { return n.ID == step.Subnet })
		s.Quotas.Subnets.Used--
	case DeleteTrunk:
		s.Trunks = without(s.Trunks, func(t Trunk) bool { return t.ID == step.Trunk })
		s.Quotas.Trunks.Used--
	case DeleteNetwork:
		s.Networks = without(s.Networks, func(n Network) bool { return n.ID == step.Network })
		before := len(s.Subnets)
		s.Subnets = without(s.Subnets, func(n Subnet) bool { return n.Network == step.Network })
		s.Ports = without(s.Ports, func(p Port) bool { return p.Network == step.Network })
		s.Quotas.Networks.Used--
		s.Quotas.Subnets.Used -= before - len(s.Subnets)
	}

	return s
}

// Elsewhere returns the IDs of those observed ports that are subports, but of none of these trunks.
func (s Observation) Elsewhere(trunks []Trunk) []string {
	in := map[string]bool{}

	for _, t := range trunks {
		for _, p := range t.Subports {
			in[p.Port] = true
		}
	}

	var out []string

	for _, p := range s.Ports {
		if p.Owner == ownerSubport && !in[p.ID] {
			out = append(out, p.ID)
		}
	}

	return out
}

// without returns the elements that do not match, in new memory.
func without[T any](all []T, match func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), match)
}

// only returns the elements that match, in new memory.
func only[T any](all []T, match func(T) bool) []T {
	return without(all, func(e T) bool { return !match(e) })
}

// count returns how many elements match.
func count[T any](all []T, match func(T) bool) int {
	n := 0

	for _, e := range all {
		if match(e) {
			n++
		}
	}

	return n
}

// withSubports returns the trunks, in new memory, with the result of change as subports of one
// trunk.
func withSubports(all []Trunk, id string, change func([]Subport) []Subport) []Trunk {
	all = slices.Clone(all)
	for i := range all {
		if all[i].ID == id {
			all[i].Subports = change(all[i].Subports)
		}
	}

	return all
}
