package reconcile

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// release forgets what the key's object no longer has, now that the database
// holds the rows and no others. It says whether that was a node's id and subnets.
func (b *books) release(c *plan.Cluster, k plan.Key, rows []plan.Row) (node bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch k.Kind {
	case plan.KindNode:
		if len(rows) == 0 && c.Node(k.Name) == nil {
			node = b.nodes.Release(k.Name)
			delete(b.macs, k.Name)
		}
	case plan.KindPod:
		// The pod may have gone, or become another, since its rows were planned.
		var keep []string
		for _, r := range rows {
			if port, ok := r.(plan.LogicalSwitchPort); ok {
				keep = append(keep, port.Incarnation)
			}
		}
		if p := c.Pod(k.Namespace, k.Name); plan.NeedsPort(p) && c.Node(p.Spec.NodeName) != nil {
			keep = append(keep, string(p.UID))
		}
		name := k.Namespace + "/" + k.Name
		b.pods.Release(name, keep...)
		maps.DeleteFunc(b.unwritten, func(p ipam.Pod, _ bool) bool { return p.Name == name && !slices.Contains(keep, p.UID) })
	}
	return node
}

// written notes that the annotations of the key's object say what was allocated.
func (b *books) written(k plan.Key, p *patch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.unwritten, ipam.Pod{Name: k.Namespace + "/" + k.Name, UID: string(p.of.UID)})
}

// freed returns the addresses that pods have lost since it was last called.
func (b *books) freed() []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods.Freed()
}

// owners are the keys of all that something was allocated to, in no order.
func (b *books) owners() []plan.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []plan.Key
	for name := range b.nodes.All() {
		out = append(out, plan.NodeKey(name))
	}
	for _, pod := range b.pods.All() {
		namespace, name, _ := strings.Cut(pod.Name, "/")
		out = append(out, plan.PodKey(namespace, name))
	}
	return out
}

// usage is how much of what can be handed out is in use.
type usage struct {
	nodes, pods int
	full        int // nodes' subnets without a free address
	fullest     []subnetUsage
	cluster     map[netip.Prefix]struct{ Used, Room int }
}

// subnetUsage is one subnet of a node.
type subnetUsage struct {
	node       string
	subnet     netip.Prefix
	used, room int
}

// usage looks at all nodes, and returns the n fullest subnets.
func (b *books) usage(n int) usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := usage{nodes: b.nodes.Len(), pods: b.pods.Len(), cluster: b.nodes.Capacity()}
	for node, subnets := range b.nodes.All() {
		for _, s := range subnets {
			one := subnetUsage{node, s, b.pods.Used(s), ipam.Capacity(s)}
			if one.used >= one.room {
				u.full++
			}
			u.fullest = append(u.fullest, one)
		}
	}
	slices.SortFunc(u.fullest, func(x, y subnetUsage) int {
		return cmp.Or(cmp.Compare(y.used*x.room, x.used*y.room), cmp.Compare(x.node, y.node), x.subnet.Addr().Compare(y.subnet.Addr()))
	})
	u.fullest = u.fullest[:min(n, len(u.fullest))]
	return u
}
