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

// Pods of a node without a gateway leave the cluster by the gateways of other nodes, the node's
// egress gateways. In place of the gateway router, such a node has a router on the join switch only
// (egressRows).

// UsesEgressGateways reports whether the node's annotations state that it has no gateway. Its rows
// then depend on the nodes that may be egress gateways.
func UsesEgressGateways(obj *corev1.Node) bool {
	gateway, err := annotation.ParseGateway(obj.Annotations)
	return err == nil && gateway.Mode == annotation.GatewayModeDisabled
}

// usesEgressGateways is UsesEgressGateways for a parsed node.
func (n node) usesEgressGateways() bool { return n.gateway.Mode == annotation.GatewayModeDisabled }

// MayBeEgressGateway reports whether the node may be an egress gateway, now or once its other
// annotations are set.
func MayBeEgressGateway(obj *corev1.Node) bool {
	gateway, err := annotation.ParseGateway(obj.Annotations)
	return err == nil && gateway.Mode == annotation.GatewayModeShared
}

// isEgressGateway reports whether the node is an egress gateway now. A node in local mode is not,
// because its host owns the ports of outgoing connections. A node without NAT is not, because
// replies to another node's pods would have no way back.
func (n node) isEgressGateway() bool {
	return n.hasGateway() && len(n.subnets) > 0 && n.gateway.Mode == annotation.GatewayModeShared &&
		!n.routable && !n.drained
}

// EgressGateways returns the names of the node's egress gateways, sorted. It returns none for a
// node with a gateway of its own.
func EgressGateways(c *Cluster, obj *corev1.Node) []string {
	if !UsesEgressGateways(obj) {
		return nil
	}

	var names []string
	for _, n := range c.egressGateways(obj.Name) {
		names = append(names, n.name)
	}

	return names
}

// MaxEgressGateways is the highest number of gateways that the pods of one node without a gateway
// use. It bounds the node's rows and the number of BFD sessions of a gateway.
const MaxEgressGateways = 8

// egressGateways returns the node's egress gateways, sorted by name. With more than
// MaxEgressGateways candidates, each node gets a choice of its own. It is stable: if a candidate is
// added or removed, at most one of the node's gateways changes.
func (c *Cluster) egressGateways(name string) []node {
	var out []node

	for other := range Objects[corev1.Node](c, KindNode) {
		if !MayBeEgressGateway(other) {
			continue
		}

		// A malformed node is reported when it is planned itself.
		if n, err := parseNode(other, c.Config); err == nil && n.isEgressGateway() {
			out = append(out, n)
		}
	}

	if len(out) > MaxEgressGateways {
		// Rendezvous hashing: each pair of nodes has a weight, and the lowest are chosen.
		weight := func(gateway node) uint64 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name + " " + gateway.name)) // a hash returns no error

			return h.Sum64()
		}

		slices.SortFunc(out, func(a, b node) int { return cmp.Compare(weight(a), weight(b)) })
		out = out[:MaxEgressGateways]
	}

	slices.SortFunc(out, func(a, b node) int { return strings.Compare(a.name, b.name) })

	return out
}

// egressRows returns a router in place of the node's gateway router, and the cluster router's
// routes to it. It is bound to the node, because OVN needs that for BFD, and it is connected to the
// join switch only. It sends pods' packets to the gateway routers of other nodes, which translate
// them. Replies bypass this router.
func (n node) egressRows(c *Cluster) []Row {
	gr := gatewayRouter + n.name
	router := LogicalRouter{Name: gr, Options: map[string]string{
		"chassis": n.chassis, "always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true",
	}}
	rows := append([]Row{router}, joinPorts(gr, n.joinPrefixes(), nil)...)

	gateways := c.egressGateways(n.name)
	for _, own := range n.joinPrefixes() {
		is4, hop := own.Addr().Is4(), own.Addr().String()
		rows = append(rows, podRoutes(gr, clusterRouterAddress(own).Addr().String(), is4, c.Config)...)
		rows = append(rows, StaticRoute{Router: clusterRouter, Prefix: hop, NextHop: hop})

		for _, subnet := range n.subnets {
			if subnet.Addr().Is4() == is4 {
				// The node's switch reads this table. OVN from 25.03 on finds no other route for
				// it, also by the source.
				rows = append(rows, StaticRoute{
					Router:     clusterRouter,
					RouteTable: hostsRouteTable,
					Policy:     "src-ip",
					Prefix:     subnet.Masked().String(),
					NextHop:    hop,
				})
			}
		}

		for _, gateway := range gateways {
			rows = append(rows, n.egressRoutes(gateway, is4, len(gateways) > 1)...)
		}
	}

	return rows
}

// egressRoutes returns the routes to one gateway:
//   - a default route;
//   - if there is another gateway as a fallback, two longer routes, each to one half of all
//     addresses. OVN uses them while the gateway's agent answers BFD, and prefers them to the
//     default route.
//
// If no agent answers, only the default routes remain, so all gateways are used as if they worked.
//
// OVN cannot watch the gateway router itself: two OVN BFD endpoints never establish a session,
// because each ignores a peer that does not know its discriminator yet. OVN also requires the
// watched address to be the route's next hop. So the next hop is the management port of the
// gateway's node, where the agent runs, with the link-layer address of the gateway router.
func (n node) egressRoutes(gateway node, is4, hasFallback bool) []Row {
	gatewayHop := gateway.joinAddress(is4)
	if !gatewayHop.IsValid() {
		return nil
	}

	gr, halves := gatewayRouter+n.name, []string{"::/1", "8000::/1"}
	if is4 {
		halves = []string{"0.0.0.0/1", "128.0.0.0/1"}
	}

	rows := []Row{StaticRoute{Router: gr, Prefix: wholeFamily(is4).String(), NextHop: gatewayHop.String()}}

	subnet, ok := firstOfFamily(gateway.subnets, is4)
	if !hasFallback || !ok || gateway.management == nil {
		return rows
	}

	port, agent := joinPort+gr, ManagementAddress(subnet).Addr().String()
	session := BFD{Port: port, Destination: agent}

	rows = append(rows, session, StaticMACBinding{
		Port: port, IP: agent, MAC: annotation.DerivedMAC(gateway.joinPrefixes()[0].Addr()).String(), Override: true,
	})
	for _, half := range halves {
		rows = append(rows, StaticRoute{
			Router: gr, Prefix: half, NextHop: agent, OutputPort: port, BFD: session.ID(),
		})
	}

	return rows
}

// joinPrefixes returns the addresses of the node's router on the join switch, at most one per
// family.
func (n node) joinPrefixes() []netip.Prefix {
	var out []netip.Prefix

	for _, p := range []netip.Prefix{n.join.IPv4, n.join.IPv6} {
		if p.IsValid() {
			out = append(out, p)
		}
	}

	return out
}

// joinAddress returns the address of the node's router on the join switch in the family, or the
// zero Addr.
func (n node) joinAddress(is4 bool) netip.Addr {
	if is4 {
		return n.join.IPv4.Addr()
	}

	return n.join.IPv6.Addr()
}
