package plan

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Names that exist once.
const (
	clusterRouter   = "ovn_cluster_router"
	joinSwitch      = "join"
	clusterLBGroup  = "clusterLBGroup"       // load balancers of all nodes' switches and gateway routers
	switchLBGroup   = "clusterSwitchLBGroup" // load balancers of all nodes' switches
	routerLBGroup   = "clusterRouterLBGroup" // load balancers of all gateway routers
	physicalNetwork = "physnet"              // ovn-bridge-mappings maps it to the gateway bridge
	hostsRouteTable = "hosts"                // of the cluster router: to the hosts of other nodes
)

// Prefixes of names. A node's or a router's name follows.
const (
	gatewayRouter    = "GR_"                   // node: its gateway router
	switchRouterPort = "rtos-"                 // node: the cluster router's port to its switch
	externalPort     = "rtoe-" + gatewayRouter // node: its gateway router's port to the physical network
	joinPort         = "rtoj-"                 // router: its port on the join switch
)

// clusterRows returns the rows that exist once:
//   - the cluster router, and the join switch that connects it to the gateway routers;
//   - the groups of load balancers: one for all switches and gateway routers, and one for each of
//     the two kinds. Load balancers of Services are in groups, so that a Service changes without
//     touching switches and routers;
//   - the group of ports by which clients come;
//   - the address sets to which rows of nodes refer;
//   - the meter of ACL logs.
func clusterRows(c *Cluster, _ Key) ([]Row, error) {
	var addresses []netip.Prefix
	for _, subnet := range c.Config.JoinSubnets {
		addresses = append(addresses, clusterRouterAddress(subnet))
	}

	router := LogicalRouter{
		Name: clusterRouter,
		// Without dynamic neighbours, northd writes flows with the MAC addresses of the gateway
		// routers. A router that learns them would drop packets meanwhile: see podRoutes.
		Options: map[string]string{
			"always_learn_from_arp_request": "false",
			"dynamic_neigh_routers":         "false",
		},
	}

	rows := []Row{
		router,
		LogicalSwitch{Name: joinSwitch},
		LoadBalancerGroup{Name: clusterLBGroup},
		LoadBalancerGroup{Name: switchLBGroup},
		LoadBalancerGroup{Name: routerLBGroup},
		PortGroup{Name: clientsGroup},
	}
	for _, is4 := range []bool{true, false} {
		rows = append(rows, AddressSet{Name: hostSetName(is4), Addresses: c.hostAddresses(is4)})
	}

	rows = append(rows, tunnelSets(c)...)

	joinOptions := map[string]string{"route_table": hostsRouteTable}
	rows = append(rows, joinPorts(clusterRouter, addresses, joinOptions)...)

	return append(rows, meterRows(c)...), nil
}

// nodeSwitch returns the name of the node's switch. It is the node's name, except for a node with
// the name of the join switch. Node names have no underscore, so the alternative is never a node's
// name.
func nodeSwitch(node string) string {
	if node == joinSwitch {
		return "node_" + node
	}

	return node
}

// hostAddresses returns the trusted addresses of all nodes' hosts in the family that clients may
// use, sorted.
func (c *Cluster) hostAddresses(is4 bool) []string {
	var all []netip.Addr

	for node := range Objects[corev1.Node](c, KindNode) {
		// A malformed annotation is reported when the node is planned itself.
		var cidrs []netip.Prefix
		if err := optional(&cidrs, node.Annotations, annotation.ParseHostCIDRs); err == nil {
			trusted, _, _ := c.Config.Hosts.Split(node, cidrs)
			all = append(all, services.OfFamily(usable(trusted, c.Config), is4)...)
		}
	}

	slices.SortFunc(all, netip.Addr.Compare)

	return addrStrings(slices.Compact(all))
}

// hostSetName returns the name of the address set with hostAddresses.
func hostSetName(is4 bool) string {
	if is4 {
		return "ovnebpf_hosts_v4"
	}

	return "ovnebpf_hosts_v6"
}

// clusterRouterAddress returns the cluster router's address on the join switch: the subnet's first.
func clusterRouterAddress(subnet netip.Prefix) netip.Prefix { return nth(subnet, 1) }

// joinPorts returns the two ports that connect a router to the join switch. addresses are those of
// the router there, at least one.
func joinPorts(router string, addresses []netip.Prefix, options map[string]string) []Row {
	return []Row{
		LogicalRouterPort{
			Router: router, Name: joinPort + router, MAC: annotation.DerivedMAC(addresses[0].Addr()).String(),
			Networks: prefixStrings(addresses), Options: options,
		},
		routerPort(joinSwitch, "jtor-"+router, joinPort+router),
	}
}

// routerPort returns the port of a switch that connects it to a router.
func routerPort(sw, name, peer string) LogicalSwitchPort {
	return LogicalSwitchPort{
		Switch: sw, Name: name, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": peer},
	}
}
