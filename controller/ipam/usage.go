package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// Usage is how much of what can be allocated is in use.
type Usage struct {
	Nodes, Addresses int
	Full             int // nodes' subnets without a free address
	Fullest          []SubnetUsage
	Cluster          map[netip.Prefix]struct{ Used, Room int }
}

// SubnetUsage is that of one subnet of a node.
type SubnetUsage struct {
	Node       string
	Subnet     netip.Prefix
	Used, Room int
}

// Usage returns the usage of all subnets, with the n fullest ones of nodes.
func (a *Allocator) Usage(n int) Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := Usage{Nodes: a.nodes.Len(), Addresses: a.pods.Len(), Cluster: a.nodes.Capacity()}
	for node, subnets := range a.nodes.All() {
		for _, s := range subnets {
			one := SubnetUsage{node, s, a.pods.Used(s), Capacity(s)}
			if one.Used >= one.Room {
				u.Full++
			}
			u.Fullest = append(u.Fullest, one)
		}
	}
	slices.SortFunc(u.Fullest, func(x, y SubnetUsage) int {
		return cmp.Or(cmp.Compare(y.Used*x.Room, x.Used*y.Room), cmp.Compare(x.Node, y.Node), x.Subnet.Addr().Compare(y.Subnet.Addr()))
	})
	u.Fullest = u.Fullest[:min(n, len(u.Fullest))]
	return u
}
