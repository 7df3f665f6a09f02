package plan

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// MostExits is by how many gateways the pods of one node without a gateway
// leave at most: it bounds the node's rows, and with all nodes' the BFD
// sessions of a gateway.
const MostExits = 8

// LeavesByOthers says whether the node says that it has no gateway: its pods
// leave by those of other nodes, on which its rows depend.
func LeavesByOthers(obj *corev1.Node) bool {
	n := node{}
	return optional(&n.gateway, obj.Annotations, annotation.ParseGateway) == nil && n.leavesByOthers()
}

func (n node) leavesByOthers() bool { return n.gateway.Mode == annotation.GatewayModeDisabled }

// IsExit says whether pods of nodes without a gateway may leave by the node,
// or will be when more of it is known.
func IsExit(obj *corev1.Node) bool {
	var n node
	err := optional(&n.gateway, obj.Annotations, annotation.ParseGateway)
	return err == nil && n.gateway.Mode == annotation.GatewayModeShared
}

// isExit: in local mode the host has the ports of what leaves, and without NAT
// another node's pods have no way back.
func (n node) isExit() bool {
	return n.hasGateway() && len(n.subnets) > 0 && n.gateway.Mode == annotation.GatewayModeShared && !n.routable && !n.drained
}

// Exits returns the names of the nodes by whose gateways the node's pods leave,
// sorted. A node with a gateway of its own has none.
func Exits(c *Cluster, obj *corev1.Node) []string {
	if !LeavesByOthers(obj) {
		return nil
	}
	var names []string
	for _, n := range c.exits(obj.Name) {
		names = append(names, n.name)
	}
	return names
}

// exits are the gateways by which the node's pods leave, by name. Where there
// are more than MostExits, each node has its own choice, which changes only
// with the gateways that are in it.
func (c *Cluster) exits(name string) []node {
	var out []node
	for other := range Objects[corev1.Node](c, KindNode) {
		if !IsExit(other) {
			continue
		}
		// What is malformed is reported where that node is planned.
		if n, err := parseNode(other, c.Config); err == nil && n.isExit() {
			out = append(out, n)
		}
	}
	if len(out) > MostExits {
		weight := func(n node) uint64 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name + " " + n.name)) // a hash returns no error
			return h.Sum64()
		}
		slices.SortFunc(out, func(a, b node) int { return cmp.Compare(weight(a), weight(b)) })
		out = out[:MostExits]
	}
	slices.SortFunc(out, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return out
}

// exitRows are a router of the node's own in the place of its gateway router:
// bound to the node, for that is where OVN can watch with BFD, with the join
// switch alone. From there pods' packets go to the gateway routers of other
// nodes, which translate them; answers come back without passing here.
func (n node) exitRows(c *Cluster) []Row {
	gr := gatewayRouter + n.name
	router := LogicalRouter{Name: gr, Options: map[string]string{
		"chassis": n.chassis, "always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true",
	}}
	rows := append([]Row{router}, joinPorts(gr, n.joins(), nil)...)
	exits := c.exits(n.name)
	for _, own := range n.joins() {
		is4, here := own.Addr().Is4(), own.Addr().String()
		rows = append(rows, podRoutes(gr, joinAddress(own).Addr().String(), is4, c.Config)...)
		rows = append(rows, StaticRoute{Router: clusterRouter, Prefix: here, NextHop: here})
		for _, subnet := range n.subnets {
			if subnet.Addr().Is4() == is4 {
				rows = append(rows, StaticRoute{Router: clusterRouter, Policy: "src-ip", Prefix: subnet.Masked().String(), NextHop: here})
			}
		}
		for _, exit := range exits {
			rows = append(rows, n.exitRoutes(exit, is4, len(exits) > 1)...)
		}
	}
	return rows
}

// exitRoutes are the default route to one gateway and, where there is another
// to turn to, two longer ones that are there as long as the gateway's agent
// answers BFD. Where no agent does, all gateways are used as if they worked.
//
// OVN cannot watch the gateway router itself: its BFD takes no part that does
// not remember the other's, so that two of its own never meet. It wants the
// address that it watches to be the route's next hop; so that is the management
// port of the gateway's node, where the agent is, with the link-layer address
// of the gateway router.
func (n node) exitRoutes(exit node, is4, watched bool) []Row {
	theirs := exit.joinAddress(is4)
	if !theirs.IsValid() {
		return nil
	}
	gr, whole, halves := gatewayRouter+n.name, "::/0", []string{"::/1", "8000::/1"}
	if is4 {
		whole, halves = "0.0.0.0/0", []string{"0.0.0.0/1", "128.0.0.0/1"}
	}
	rows := []Row{StaticRoute{Router: gr, Prefix: whole, NextHop: theirs.String()}}
	subnet, ok := firstOfFamily(exit.subnets, is4)
	if !watched || !ok || exit.management == nil {
		return rows
	}
	port, agent := joinPort+gr, ManagementAddress(subnet).Addr().String()
	watch := BFD{Port: port, Destination: agent}
	rows = append(rows, watch, StaticMACBinding{
		Port: port, IP: agent, MAC: MAC(exit.joins()[0].Addr()).String(), Override: true,
	})
	for _, half := range halves {
		rows = append(rows, StaticRoute{Router: gr, Prefix: half, NextHop: agent, OutputPort: port, BFD: watch.ID()})
	}
	return rows
}

// joinAddress is the node's router's own address of the family on the join
// switch, or the zero Addr.
func (n node) joinAddress(is4 bool) netip.Addr {
	if is4 {
		return n.join.IPv4.Addr()
	}
	return n.join.IPv6.Addr()
}
