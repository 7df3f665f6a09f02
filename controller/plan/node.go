package plan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// nodeRows returns:
//   - the node's switch with its router port, management port and ACLs;
//   - the policies that route its pods to its own addresses;
//   - the routes by which gateway routers reach those addresses;
//   - its gateway router (gateway.go), or the router in its place (egress.go).
//
// It returns no rows before the node has a pod subnet. Rows that need another annotation that is
// not set yet are left out.
func nodeRows(c *Cluster, key Key) ([]Row, error) {
	obj := c.Node(key.Name)
	if obj == nil {
		return nil, nil
	}

	n, err := parseNode(obj, c.Config)
	if err != nil || len(n.subnets) == 0 {
		return nil, err
	}

	rows := append(n.switchRows(), n.nodeACL(), n.masqueradeACL())
	rows = append(rows, n.tunnelRows(c.Config)...)

	if n.chassis != "" {
		rows = append(rows, n.gatewayChassis())
	}

	if n.management != nil {
		rows = append(rows, n.managementRows(c.Config)...)
	}

	switch {
	case n.hasGateway():
		rows = append(rows, n.gatewayRows(c.Config)...)
	case n.usesEgressGateways() && n.canJoin():
		rows = append(rows, n.egressRows(c)...)
	}

	return rows, n.unserved()
}

// unserved returns an *Unserved if the node claims too many addresses, or nil.
func (n node) unserved() error {
	if n.hosts.excess == 0 {
		return nil
	}

	return newUnserved(fmt.Errorf("annotation %s has %d addresses too many: besides those in its status, a Node has at most %d in the networks of --host-networks",
		annotation.HostCIDRs, n.hosts.excess, annotation.MaxHostAddresses))
}

// node holds the parsed annotations of a Node. The field of an annotation that is not set yet is
// zero, or the default of the settings.
type node struct {
	name       string
	subnets    []netip.Prefix // of its pods
	join       annotation.Join
	gateway    annotation.Gateway
	routes     []annotation.Route // of the gateway router, beside those by gateway.NextHops
	chassis    string             // ChassisOf
	hosts      hostAddresses
	management net.HardwareAddr  // of the management port
	snatPorts  cluster.PortRange // source ports of its gateway's NAT
	mtu        int               // of the node's pods
	routable   bool              // the outside network has routes to pods
	drained    bool              // its gateway must not get new traffic
}

// hostAddresses are the addresses that a node's annotations give to its host. annotation.Trust
// divides them into trusted and claimed ones.
type hostAddresses struct {
	trusted []netip.Prefix // of annotation host-cidrs
	claimed []netip.Prefix // others of host-cidrs, on which only the node's own pods rely
	gateway []netip.Prefix // trusted ones of gateway.Addresses
	shared  []netip.Addr   // of gateway.Addresses and host-cidrs, trusted or not: sharedAddresses
	excess  int            // number of addresses in host-cidrs that are beyond the bound
}

// parseNode parses the annotations. It returns an error if one is malformed.
func parseNode(obj *corev1.Node, cfg Config) (node, error) {
	n := node{
		name:    obj.Name,
		chassis: ChassisOf(obj),
		mtu:     cfg.MTU,
		drained: annotation.Drained(obj.Annotations),
	}
	a := obj.Annotations

	var hostCIDRs []netip.Prefix

	errs := []error{
		optional(&n.subnets, a, annotation.ParseNodeSubnets),
		optional(&n.join, a, annotation.ParseJoin),
		optional(&n.gateway, a, annotation.ParseGateway),
		optional(&n.routes, a, annotation.ParseGatewayRoutes),
		optional(&hostCIDRs, a, annotation.ParseHostCIDRs),
		optional(&n.management, a, annotation.ParseManagementMAC),
		optional(&n.mtu, a, annotation.ParsePodMTU),
		optional(&n.routable, a, annotation.ParseRoutablePods),
	}

	var err error

	n.snatPorts, err = parsePortRange(a[annotation.SNATPortRange], cfg.SNATPorts)
	errs = append(errs, err, n.checkInterfaceID(), n.checkChassis(cfg))

	n.hosts.trusted, n.hosts.claimed, n.hosts.excess = cfg.Hosts.Split(obj, hostCIDRs)
	n.hosts.gateway, _, _ = cfg.Hosts.Split(obj, n.gateway.Addresses)
	n.hosts.shared = sharedAddresses(n.gateway, hostCIDRs)

	return n, errors.Join(errs...)
}

// checkChassis returns an error if the chassis must have the Node's name (Config.ChassisOfNode) and
// does not have it. Otherwise, an agent could claim the chassis of another node.
func (n node) checkChassis(cfg Config) error {
	if !cfg.ChassisOfNode || n.chassis == "" || n.chassis == n.name {
		return nil
	}

	return fmt.Errorf("parse annotation %s: %q is not the Node's name, as --chassis-name=node demands",
		annotation.ChassisID, n.chassis)
}

// checkInterfaceID returns an error if the gateway's port is not <bridge>_<node>. Otherwise, an
// agent could take over a port of another node, because the name of the port in OVN comes from this
// annotation.
func (n node) checkInterfaceID() error {
	id := n.gateway.InterfaceID
	if len(n.gateway.Addresses) == 0 || strings.HasSuffix(id, "_"+n.name) {
		return nil // without addresses the node has no gateway
	}

	return fmt.Errorf("parse annotation %s: interface-id %q is not <bridge>_%s", annotation.GatewayConfig, id, n.name)
}

// ChassisOf returns the name of the node's chassis, which is the system-id of its OVS, or "". If
// several nodes have the same system-id, only one of them has a chassis.
func ChassisOf(n *corev1.Node) string {
	if n.Annotations[annotation.ChassisTakenBy] != "" {
		return ""
	}

	return n.Annotations[annotation.ChassisID]
}

// optional sets *to to the parsed annotation. If the annotation is not set, *to stays as it is, and
// that is not an error.
func optional[T any](to *T, annotations map[string]string, parse func(map[string]string) (T, error)) error {
	v, err := parse(annotations)
	if errors.Is(err, annotation.ErrNotSet) {
		return nil
	}

	*to = v

	return err
}

// parsePortRange parses <first>-<last>. An empty text has the default.
func parsePortRange(s string, defaults cluster.PortRange) (cluster.PortRange, error) {
	if s == "" {
		return defaults, nil
	}

	r, err := cluster.ParsePortRange(s)
	if err != nil {
		return r, fmt.Errorf("parse annotation %s: %q is not <first>-<last>", annotation.SNATPortRange, s)
	}

	return r, nil
}

// hasGateway reports whether all settings of the gateway router are known.
func (n node) hasGateway() bool {
	return len(n.gateway.Addresses) > 0 && n.gateway.Mode != annotation.GatewayModeDisabled && n.canJoin()
}

// canJoin reports whether the node's router can be connected to the join switch.
func (n node) canJoin() bool {
	return n.chassis != "" && (n.join.IPv4.IsValid() || n.join.IPv6.IsValid())
}

// sharedAddresses returns the addresses that a gateway router has in common with the host: usually
// one per family. It returns none if the router has a network interface, and so addresses, of its
// own. It does not matter whether the addresses are trusted: this only affects the router.
func sharedAddresses(gateway annotation.Gateway, hostCIDRs []netip.Prefix) []netip.Addr {
	var out []netip.Addr

	for _, p := range gateway.Addresses {
		if slices.ContainsFunc(hostCIDRs, func(h netip.Prefix) bool { return h.Addr() == p.Addr() }) {
			out = append(out, p.Addr())
		}
	}

	return out
}

// addresses returns the node's own addresses that clients may use, sorted: the trusted ones of its
// gateway and of its host, without pod and link-local addresses.
func (n node) addresses(cfg Config) []netip.Addr {
	return usable(slices.Concat(n.hosts.gateway, n.hosts.trusted), cfg)
}

// usable returns the prefixes' addresses at which node ports may be served, sorted.
func usable(prefixes []netip.Prefix, cfg Config) []netip.Addr {
	var out []netip.Addr

	for _, p := range prefixes {
		a := p.Addr()
		if cfg.services().ServesNodePorts(a) {
			out = append(out, a)
		}
	}

	slices.SortFunc(out, netip.Addr.Compare)

	return slices.Compact(out)
}

// switchRows returns the node's switch, its placeholder, and the two ports that connect it to the
// cluster router.
func (n node) switchRows() []Row {
	otherConfig := map[string]string{}
	if p, ok := firstOfFamily(n.subnets, true); ok {
		otherConfig["subnet"] = p.Masked().String()
	}

	if p, ok := firstOfFamily(n.subnets, false); ok {
		otherConfig["ipv6_prefix"] = p.Masked().Addr().String()
	}

	var networks []string
	for _, s := range n.subnets {
		networks = append(networks, RouterAddress(s).String())
	}

	var options map[string]string
	if n.usesEgressGateways() {
		options = map[string]string{"route_table": hostsRouteTable}
	}

	port := switchRouterPort + n.name
	peer := routerPort(nodeSwitch(n.name), "stor-"+n.name, port)
	peer.Groups = []string{clientsGroup}

	return []Row{
		LogicalSwitch{
			Name:               nodeSwitch(n.name),
			OtherConfig:        otherConfig,
			LoadBalancerGroups: []string{clusterLBGroup, switchLBGroup},
		},
		LogicalRouterPort{
			Router: clusterRouter, Name: port, Networks: networks,
			MAC: annotation.DerivedMAC(RouterAddress(n.subnets[0]).Addr()).String(), Options: options,
		},
		peer,
		LogicalSwitchPort{Switch: nodeSwitch(n.name), Name: PlaceholderPort(nodeSwitch(n.name))},
	}
}

// placeholderPrefix begins the names of placeholders. The names of pods' ports have no colon.
const placeholderPrefix = "placeholder:"

// PlaceholderPort returns the name of the placeholder of a node's switch. It is a port without
// addresses, which nothing is connected to. When the last pod of the node leaves a port group, the
// placeholder joins the group (docs/decisions/0071-placeholders.md).
func PlaceholderPort(nodeSwitch string) string { return placeholderPrefix + nodeSwitch }

// IsPlaceholder reports whether a port of this name is a placeholder.
func IsPlaceholder(port string) bool { return strings.HasPrefix(port, placeholderPrefix) }

// nodeACL allows connections that the node's pods always accept: those from their own node by its
// management port, including kubelet's probes, and those that a pod makes to itself by a Service.
//
// The ACL is stateful (allow-related). Therefore OVN tracks every connection of the switch from its
// first packet, even before any policy exists. Otherwise, OVN might first see a connection in its
// middle, take it for one of the opposite direction, and not apply a new policy to it.
func (n node) nodeACL() Row {
	hairpin := strings.Fields(hairpinAddresses)                           // IPv4, IPv6
	sources := map[bool][]string{true: {hairpin[0]}, false: {hairpin[1]}} // by family (is4)

	for _, s := range n.subnets {
		a := ManagementAddress(s).Addr()
		sources[a.Is4()] = append(sources[a.Is4()], a.String())
	}

	in := ingress()

	return ACL{
		Switch:    nodeSwitch(n.name),
		Rule:      "node",
		Label:     aclLabel("node", n.name),
		Direction: in.aclDirection,
		Priority:  allowPriority,
		Match:     disjunction(in.setMatch("ip4", sources[true]), in.setMatch("ip6", sources[false])),
		Action:    "allow-related",
	}
}

// gatewayChassis returns the row that binds the router port of the node's switch to the node's
// chassis. Other chassis then tunnel packets for this switch to that chassis, and have no flows for
// the switch. Otherwise, each node would have the flows of all switches, for all load balancers and
// policies.
func (n node) gatewayChassis() Row {
	port := switchRouterPort + n.name
	return GatewayChassis{Port: port, Name: port + "-chassis", Chassis: n.chassis, Priority: 1}
}

// managementPolicyPriority is the highest priority of all router policies, because pods always
// reach their node's own addresses by its management port.
const managementPolicyPriority = 1004

// managementRows returns the node's management port. For each address of the host, it also returns
// a policy that leads the node's own pods to that port. If the address is trusted, it returns a
// route in hostsRouteTable, too.
func (n node) managementRows(cfg Config) []Row {
	addresses := n.management.String()
	for _, s := range n.subnets {
		addresses += " " + ManagementAddress(s).Addr().String()
	}

	rows := []Row{
		LogicalSwitchPort{Switch: nodeSwitch(n.name), Name: "k8s-" + n.name, Addresses: []string{addresses}},
	}

	trusted := usable(n.hosts.trusted, cfg)

	for _, a := range usable(slices.Concat(n.hosts.trusted, n.hosts.claimed), cfg) {
		subnet, ok := firstOfFamily(n.subnets, a.Is4())
		if !ok {
			continue
		}

		rows = append(rows, RouterPolicy{
			Router:   clusterRouter,
			Priority: managementPolicyPriority,
			Action:   "reroute",
			Match: fmt.Sprintf("inport == %q && %s.dst == %s /* %s */",
				switchRouterPort+n.name, familyWord(a.Is4()), a, n.name),
			NextHops: []string{ManagementAddress(subnet).Addr().String()},
		})

		if _, isTrusted := slices.BinarySearchFunc(trusted, a, netip.Addr.Compare); isTrusted {
			rows = append(rows, StaticRoute{
				Router:     clusterRouter,
				RouteTable: hostsRouteTable,
				Prefix:     netip.PrefixFrom(a, a.BitLen()).String(),
				NextHop:    ManagementAddress(subnet).Addr().String(),
				OutputPort: switchRouterPort + n.name,
			})
		}
	}

	return rows
}

// trimNode drops all fields except those that plans and allocation read, and the condition
// NetworkUnavailable.
func trimNode(obj any) {
	if n, ok := obj.(*corev1.Node); ok {
		n.Spec = corev1.NodeSpec{}

		var conditions []corev1.NodeCondition
		if networkUnavailable(n) {
			conditions = []corev1.NodeCondition{
				{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue},
			}
		}

		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: conditions}
	}
}

// networkUnavailable reports whether the node has the condition NetworkUnavailable, with which some
// clouds create nodes. Kubernetes schedules no pods there then.
func networkUnavailable(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	})
}

// NetworkBecomesAvailable reports whether the node has the condition NetworkUnavailable although
// its pods have a network now: the node has a pod subnet, and its agent has written all annotations
// that the node's rows need. The caller then removes the condition.
func NetworkBecomesAvailable(c *Cluster, obj *corev1.Node) bool {
	if !networkUnavailable(obj) {
		return false
	}

	n, err := parseNode(obj, c.Config)

	return err == nil && len(n.subnets) > 0 && n.management != nil && n.canJoin() && n.gateway.Mode != ""
}
