package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// gatewayRows returns the node's gateway router between the join switch and the physical network,
// its external switch, its routes, its source NAT, and the cluster router's routes to it.
func (n node) gatewayRows(cfg Config) []Row {
	gr := gatewayRouter + n.name

	var addresses []string
	for _, p := range n.gateway.Addresses {
		addresses = append(addresses, p.Addr().String())
	}

	router := LogicalRouter{
		Name: gr,
		Options: map[string]string{
			"chassis":                       n.chassis,
			"lb_force_snat_ip":              "router_ip", // replies of Services return by this router
			"always_learn_from_arp_request": "false",
			"dynamic_neigh_routers":         "true",
			NeighbourAge:                    "60",
		},
		LoadBalancerGroups: []string{clusterLBGroup, routerLBGroup},
		ExternalIDs:        map[string]string{"physical_ips": strings.Join(addresses, ",")},
	}
	joinOptions := map[string]string{"gateway_mtu": strconv.Itoa(n.mtu)}
	rows := append([]Row{router}, joinPorts(gr, n.joinPrefixes(), joinOptions)...)
	rows = append(rows, n.externalRows(gr)...)
	rows = append(rows, n.routeRows(gr, cfg)...)
	rows = append(rows, n.defaultRows(gr, cfg)...)
	rows = append(rows, n.masqueradeRows(gr)...)
	rows = append(rows, n.hostRows(gr)...)

	if n.routable { // the outside network has routes to pods: no NAT
		return rows
	}

	return append(rows, n.natRows(gr, cfg)...)
}

// NeighbourAge is the option of a Logical_Router with the time in seconds after which the router
// forgets a learned neighbour that it does not use. Without it, the router notices that a neighbour
// has another link-layer address only if the neighbour announces that.
const NeighbourAge = "mac_binding_age_threshold"

// externalRows returns the rows that connect the gateway router to the node's gateway bridge: the
// external switch with its localnet port, and the two ports between switch and router.
func (n node) externalRows(gr string) []Row {
	sw, port := "ext_"+n.name, externalPort+n.name
	peer := routerPort(sw, "etor-"+gr, port)
	peer.Addresses = []string{n.gateway.MAC}

	return []Row{
		LogicalSwitch{Name: sw},
		LogicalSwitchPort{
			Switch:    sw,
			Groups:    []string{clientsGroup},
			Name:      n.gateway.InterfaceID,
			Type:      "localnet",
			Addresses: []string{"unknown"},
			Options:   map[string]string{"network_name": physicalNetwork},
			Tag:       n.gateway.VLAN,
		},
		LogicalRouterPort{
			Router: gr, Name: port, MAC: n.gateway.MAC, Networks: prefixStrings(n.gateway.Addresses),
		},
		peer,
	}
}

// routeRows returns the routes between the gateway router and the cluster router. The gateway
// router sends pods' addresses to the cluster router. The cluster router sends outgoing traffic by
// the source's node: to its management port in local gateway mode, otherwise to its gateway router.
//
// The cluster router also has a host route to the gateway router's join address, which precedes the
// source route because its prefix is longer. It leads replies to connections that came in by this
// gateway router back to it. Without it, they would leave by the gateway of the pod's own node.
func (n node) routeRows(gr string, cfg Config) []Row {
	var rows []Row

	for _, own := range n.joinPrefixes() {
		is4 := own.Addr().Is4()
		clusterHop, gatewayHop := clusterRouterAddress(own).Addr().String(), own.Addr().String()

		rows = append(rows, podRoutes(gr, clusterHop, is4, cfg)...)
		for _, subnet := range n.subnets {
			if subnet.Addr().Is4() != is4 {
				continue
			}

			hop := gatewayHop
			if n.gateway.Mode == annotation.GatewayModeLocal {
				hop = ManagementAddress(subnet).Addr().String()
			}

			rows = append(rows, StaticRoute{
				Router: clusterRouter, Policy: "src-ip", Prefix: subnet.Masked().String(), NextHop: hop,
			})
		}

		rows = append(rows, StaticRoute{Router: clusterRouter, Prefix: gatewayHop, NextHop: gatewayHop})
	}

	return rows
}

// podRoutes returns routes from a gateway router to pods through the cluster router, whose address
// on the join switch is hop. A row sets the MAC address of the cluster router: a router that learns
// an address queues four packets meanwhile, and drops the rest.
func podRoutes(gr, hop string, is4 bool, cfg Config) []Row {
	mac := annotation.DerivedMAC(clusterRouterAddress(cfg.JoinSubnets[0]).Addr()).String()
	rows := []Row{StaticMACBinding{Port: joinPort + gr, IP: hop, MAC: mac, Override: true}}

	for _, cidr := range cfg.ClusterCIDRs {
		if cidr.Addr().Is4() == is4 {
			rows = append(rows, StaticRoute{Router: gr, Prefix: cidr.Masked().String(), NextHop: hop})
		}
	}

	return rows
}

// defaultRows returns the gateway router's routes to other networks: default routes by the next
// hops of the gateway, and the routes of the node's annotation. A next hop with a MAC address in
// the annotation gets a static binding. BFD watches the others, if configured.
func (n node) defaultRows(gr string, cfg Config) []Row {
	var routes []annotation.Route
	for _, hop := range n.gateway.NextHops {
		routes = append(routes, annotation.Route{To: wholeFamily(hop.Is4()), Via: hop})
	}

	var rows []Row

	seen := map[netip.Addr]bool{} // next hops that have their rows

	for _, r := range append(routes, n.routes...) {
		route := StaticRoute{Router: gr, Prefix: r.To.Masked().String(), OutputPort: externalPort + n.name}
		if r.Via.IsValid() { // otherwise northd takes the destination as the next hop
			route.NextHop = r.Via.WithZone("").String()
		}

		var hopRow Row // how the router treats the next hop; once for each

		switch {
		case !r.Via.IsValid():
		case r.MAC != "":
			hopRow = StaticMACBinding{Port: route.OutputPort, IP: route.NextHop, MAC: r.MAC, Override: true}
		case cfg.BFD:
			session := BFD{Port: route.OutputPort, Destination: route.NextHop}
			route.BFD, hopRow = session.ID(), session
		}

		if hopRow != nil && !seen[r.Via] {
			rows = append(rows, hopRow)
		}

		seen[r.Via] = true

		rows = append(rows, route)
	}

	return rows
}

// masqueradeRows returns the route from the gateway router to the host of its own node. Both have
// the same address, so the route leads to the masquerade addresses instead (package masquerade),
// which flows on the gateway bridge translate.
func (n node) masqueradeRows(gr string) []Row {
	var rows []Row

	for _, a := range n.hosts.shared {
		m := masquerade.Of(a.Is4())
		port := externalPort + n.name

		rows = append(rows,
			StaticRoute{Router: gr, Prefix: m.Subnet.String(), NextHop: m.NextHop.String(), OutputPort: port},
			StaticMACBinding{Port: port, IP: m.NextHop.String(), MAC: masquerade.MAC, Override: true})
	}

	return rows
}

// hostRows returns policies for load-balanced traffic from outside whose backend is the address of
// another host. They route it through the cluster router to the management port of that host's
// node, not back to the outside network. There, its source would be the router's address with the
// client's port, because OVN does not keep to the SNAT range for load-balanced traffic. Ports
// outside of the range belong to the host, which would get the replies.
//
// The policies do not match replies (ct.rpl): if another host connects from outside to this node's
// host, the replies leave to the outside network.
func (n node) hostRows(gr string) []Row {
	var rows []Row

	for _, own := range n.joinPrefixes() {
		is4 := own.Addr().Is4()
		rows = append(rows, RouterPolicy{
			Router:   gr,
			Priority: managementPolicyPriority,
			Action:   "reroute",
			Match: fmt.Sprintf("inport == %q && %s.dst == $%s && !ct.rpl",
				externalPort+n.name, familyWord(is4), hostSetName(is4)),
			NextHops: []string{clusterRouterAddress(own).Addr().String()},
		})
	}

	return rows
}

// natRows returns rows that translate pods to the node's address of their family. The source ports
// come from the SNAT range, so that all other ports remain with the host.
func (n node) natRows(gr string, cfg Config) []Row {
	var rows []Row

	for _, cidr := range cfg.ClusterCIDRs {
		if external, ok := firstOfFamily(n.gateway.Addresses, cidr.Addr().Is4()); ok {
			rows = append(rows, NAT{
				Router: gr, Type: "snat", ExternalIP: external.Addr().String(),
				LogicalIP: cidr.Masked().String(), ExternalPortRange: n.snatPorts.String(),
			})
		}
	}

	return rows
}
