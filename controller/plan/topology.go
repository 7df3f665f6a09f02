package plan

import "net/netip"

// Names of what exists once.
const (
	clusterRouter   = "ovn_cluster_router"
	joinSwitch      = "join"
	clusterLBGroup  = "clusterLBGroup"
	switchLBGroup   = "clusterSwitchLBGroup"
	routerLBGroup   = "clusterRouterLBGroup"
	physicalNetwork = "physnet"
	hostsRouteTable = "hosts" // to other nodes' hosts, for gateway routers and for pods without one
	gatewayRouter   = "GR_"   // and a node's name
	joinPort        = "rtoj-" // and a router's name: its port on the join switch
)

// nodeSwitch is the name of the node's switch: the node's own, unless that is the name of another
// switch. A node's name has no underscore, so no node has the name that it gets then.
func nodeSwitch(node string) string {
	if node == joinSwitch {
		return "node_" + node
	}
	return node
}

// hostAddresses is the family's set of all nodes' addresses.
func hostAddresses(is4 bool) string {
	if is4 {
		return "ovnebpf_hosts_v4"
	}
	return "ovnebpf_hosts_v6"
}

// clusterRows are the cluster router, the join switch between it and the
// nodes' gateway routers, and the groups in which services' load balancers
// are, so that a service changes without touching switches and routers: that
// of nodes' switches and gateway routers, and one of each kind; and that of the switches by
// which clients come.
func clusterRows(c *Cluster, _ Key) ([]Row, error) {
	var addresses []netip.Prefix
	for _, subnet := range c.Config.JoinSubnets {
		addresses = append(addresses, joinAddress(subnet))
	}
	router := LogicalRouter{
		Name: clusterRouter,
		// northd tells it the gateway routers' MAC addresses: see podRoutes.
		Options: map[string]string{"always_learn_from_arp_request": "false", "dynamic_neigh_routers": "false"},
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
	rows = append(rows, joinPorts(clusterRouter, addresses, map[string]string{"route_table": hostsRouteTable})...)
	return append(rows, meterRows(c)...), nil
}

// joinAddress is the cluster router's address on the join switch.
func joinAddress(subnet netip.Prefix) netip.Prefix { return nth(subnet, 1) }

// joinPorts connect a router to the join switch.
func joinPorts(router string, addresses []netip.Prefix, options map[string]string) []Row {
	return []Row{
		LogicalRouterPort{
			Router: router, Name: joinPort + router, MAC: MAC(addresses[0].Addr()).String(),
			Networks: prefixStrings(addresses), Options: options,
		},
		routerPort(joinSwitch, "jtor-"+router, joinPort+router),
	}
}

// routerPort is the switch's end of its connection to a router.
func routerPort(sw, name, peer string) LogicalSwitchPort {
	return LogicalSwitchPort{
		Switch: sw, Name: name, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": peer},
	}
}
