package plan

import "net/netip"

// Names of what exists once.
const (
	clusterRouter   = "ovn_cluster_router"
	joinSwitch      = "join"
	clusterLBGroup  = "clusterLBGroup"
	physicalNetwork = "physnet"
)

// clusterRows are the cluster router, the join switch between it and the
// nodes' gateway routers, and the group in which all services' load balancers
// are, so that a service changes without touching switches and routers.
func clusterRows(cfg Config) []Row {
	var addresses []netip.Prefix
	for _, subnet := range cfg.JoinSubnets {
		addresses = append(addresses, joinAddress(subnet))
	}
	router := LogicalRouter{
		Name:    clusterRouter,
		Options: map[string]string{"always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true"},
	}
	rows := []Row{
		router,
		LogicalSwitch{Name: joinSwitch},
		LoadBalancerGroup{Name: clusterLBGroup},
	}
	return append(rows, joinPorts(clusterRouter, addresses, nil)...)
}

// joinAddress is the cluster router's address on the join switch.
func joinAddress(subnet netip.Prefix) netip.Prefix { return nth(subnet, 1) }

// joinPorts connect a router to the join switch.
func joinPorts(router string, addresses []netip.Prefix, options map[string]string) []Row {
	return []Row{
		LogicalRouterPort{
			Router: router, Name: "rtoj-" + router, MAC: MAC(addresses[0].Addr()).String(),
			Networks: prefixStrings(addresses), Options: options,
		},
		routerPort(joinSwitch, "jtor-"+router, "rtoj-"+router),
	}
}

// routerPort is the switch's end of its connection to a router.
func routerPort(sw, name, peer string) LogicalSwitchPort {
	return LogicalSwitchPort{
		Switch: sw, Name: name, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": peer},
	}
}
