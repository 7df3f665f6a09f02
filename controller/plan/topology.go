package plan

import "net/netip"

// Names of rows that exist once, and prefixes of names.
const (
	clusterRouter   = "ovn_cluster_router"
	joinSwitch      = "join"
	clusterLBGroup  = "clusterLBGroup"
	switchLBGroup   = "clusterSwitchLBGroup"
	routerLBGroup   = "clusterRouterLBGroup"
	physicalNetwork = "physnet"
	hostsRouteTable = "hosts" // routes to other nodes' hosts, for gateway routers and pods without one
	gatewayRouter   = "GR_"   // followed by a node's name
	joinPort        = "rtoj-" // followed by a router's name: its port on the join switch
)

// nodeSwitch returns the name of the node's switch. It is the node's name, unless another switch
// has this name. Node names have no underscore, so the alternative is never a node's name.
func nodeSwitch(node string) string {
	if node == joinSwitch {
		return "node_" + node
	}

	return node
}

// hostAddresses returns the name of the family's set of all nodes' addresses.
func hostAddresses(is4 bool) string {
	if is4 {
		return "ovnebpf_hosts_v4"
	}

	return "ovnebpf_hosts_v6"
}

// clusterRows returns the cluster router, the join switch that connects it to the gateway routers,
// and the groups of load balancers and client ports. The load balancers of services are in groups,
// so that a service changes without touching switches and routers. There is one group for all
// switches and gateway routers, and one for each of the two kinds. It also returns the address sets to
// which rows of nodes refer.
func clusterRows(c *Cluster, _ Key) ([]Row, error) {
	var addresses []netip.Prefix
	for _, subnet := range c.Config.JoinSubnets {
		addresses = append(addresses, joinAddress(subnet))
	}

	router := LogicalRouter{
		Name: clusterRouter,
		// northd writes the gateway routers' MAC addresses: see podRoutes.
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
		rows = append(rows, AddressSet{Name: hostAddresses(is4), Addresses: c.hosts(is4)})
	}

	rows = append(rows, tunnelSets(c)...)

	joinOptions := map[string]string{"route_table": hostsRouteTable}
	rows = append(rows, joinPorts(clusterRouter, addresses, joinOptions)...)

	return append(rows, meterRows(c)...), nil
}

// joinAddress returns the cluster router's address on the join switch.
func joinAddress(subnet netip.Prefix) netip.Prefix { return nth(subnet, 1) }

// joinPorts returns the ports that connect a router to the join switch.
func joinPorts(router string, addresses []netip.Prefix, options map[string]string) []Row {
	return []Row{
		LogicalRouterPort{
			Router: router, Name: joinPort + router, MAC: MAC(addresses[0].Addr()).String(),
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
