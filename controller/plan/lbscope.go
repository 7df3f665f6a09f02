package plan

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// This file decides which load balancers a Service has. Each frontend of the Service (a cluster IP,
// an external address or a node port, with a port) is a VIP with backends. Which load balancer has
// the VIP depends on which clients need other backends than others:
//   - If all clients have the same backends, one load balancer has it, for all switches and gateway
//     routers.
//   - If the clients inside of the cluster (at switches) and those outside (at routers) differ, one
//     load balancer for each of these places has it.
//   - If the nodes differ at one of the places, too, the nodes with the same backends share a load
//     balancer there.
//
// vipsByScope is the entry. For each frontend, addFrontend finds the backends and chooses one of
// these cases. vipScopes.addDiffering finds the nodes that share a load balancer.

// lbScope says which switches and routers have a load balancer of a Service: those of all nodes, of
// certain nodes, or of the nodes without a load balancer of their own.
type lbScope struct {
	place      lbPlace
	byNode     bool   // the load balancer is that of some nodes: those of scopedVIPs.nodes
	node       string // if byNode: the name of the first of these nodes; "": they are the others
	keepClient bool   // a router does not translate the client's address
}

// lbPlace is where a load balancer handles packets. Switches have the clients inside of the
// cluster, routers those outside.
type lbPlace uint8

const (
	everywhere lbPlace = iota
	atSwitches
	atRouters
)

// suffix returns the part of the load balancer's name that distinguishes it from the Service's
// others.
func (scope lbScope) suffix() string {
	text := [...]string{"cluster", "switches", "routers"}[scope.place]
	switch {
	case scope.byNode && scope.node == "":
		text += "_others"
	case scope.byNode:
		text += "_node_" + scope.node
	}

	if scope.keepClient {
		text += "_local"
	}

	return text
}

// frontend is one address and port at which a Service, or a pod with host ports, is served.
type frontend struct {
	addr     netip.AddrPort
	node     *serviceNode // of a node port or host port, otherwise nil
	external bool         // for clients outside of the cluster
	// Clients at this place use only endpoints on the node where they arrive (traffic policy Local).
	localAtSwitches, localAtRouters bool
}

// vipScopes has, for one protocol, the VIPs of each scope. Each scope becomes a load balancer, or
// several if it has many VIPs (split).
type vipScopes map[lbScope]*scopedVIPs

// scopedVIPs has the VIPs of one scope.
type scopedVIPs struct {
	vips  map[string]string // VIP → backends, both in OVN's format
	nodes []*serviceNode    // the nodes of the load balancer, if lbScope.byNode
}

// add adds a VIP with its backends to the scope.
func (v vipScopes) add(scope lbScope, vip netip.AddrPort, backends string) {
	if v[scope] == nil {
		v[scope] = &scopedVIPs{vips: map[string]string{}}
	}

	v[scope].vips[vip.String()] = backends
}

// parents returns the names of the rows that refer to the load balancer with these VIPs: a group of
// all nodes, or switches, or routers.
func (v scopedVIPs) parents(scope lbScope) (groups, switches, routers []string) {
	switch {
	case !scope.byNode:
		return []string{[...]string{clusterLBGroup, switchLBGroup, routerLBGroup}[scope.place]}, nil, nil
	case scope.place == atSwitches:
		for _, n := range v.nodes {
			switches = append(switches, nodeSwitch(n.name))
		}
	default:
		for _, n := range v.nodes {
			if n.hasGatewayRouter {
				routers = append(routers, gatewayRouter+n.name)
			}
		}
	}

	return nil, switches, routers
}

// vipCollector collects the VIPs of a Service in one protocol.
type vipCollector struct {
	uniform   vipScopes                  // of VIPs with the same backends on all nodes
	differing map[lbScope][]differingVIP // the other VIPs, in the order of the frontends
}

// differingVIP is a VIP with other backends on some nodes.
type differingVIP struct {
	vip netip.AddrPort
	nodeBackends
}

// nodeBackends holds the backends of a VIP at one place: those of some nodes, and those of all
// others.
type nodeBackends struct {
	others string
	byNode map[*serviceNode]string
}

// forNode returns the backends of a node.
func (b nodeBackends) forNode(n *serviceNode) string {
	if text, ok := b.byNode[n]; ok {
		return text
	}

	return b.others
}

// vipsByScope returns the VIPs of each protocol by scope. It sets servedPorts.
func (s *service) vipsByScope() map[corev1.Protocol]vipScopes {
	collectors := map[corev1.Protocol]*vipCollector{}

	for _, port := range s.Ports {
		if collectors[port.Protocol] == nil {
			collectors[port.Protocol] = &vipCollector{vipScopes{}, map[lbScope][]differingVIP{}}
		}

		s.addPort(collectors[port.Protocol], port)
	}

	out := map[corev1.Protocol]vipScopes{}
	for proto, collector := range collectors {
		out[proto] = collector.scopes(s.nodes.list)
	}

	return out
}

// addPort adds the VIPs of a port in both families, and appends it to servedPorts.
func (s *service) addPort(collector *vipCollector, port services.Port) {
	served := servedPort{proto: port.Protocol, number: int(port.Number)}

	for _, is4 := range []bool{true, false} {
		frontends := s.frontends(port, is4)
		if len(frontends) == 0 {
			continue
		}

		t := newTargets(s.endpoints(port, is4), s.nodes)

		for _, f := range frontends {
			if f.external && f.node == nil {
				served.external = append(served.external, f.addr.Addr())
			}

			s.addFrontend(collector, f, t)
		}
	}

	s.servedPorts = append(s.servedPorts, served)
}

// frontends returns the frontends of the port in one family that the Service gets.
func (s *service) frontends(port services.Port, is4 bool) []frontend {
	var out []frontend
	for _, a := range services.OfFamily(s.ClusterIPs, is4) {
		out = append(out, frontend{
			addr:            netip.AddrPortFrom(a, port.Number),
			localAtSwitches: s.InternalLocal,
			localAtRouters:  s.InternalLocal,
		})
	}

	if len(out) == 0 {
		return nil // the Service does not have this family
	}

	if s.remainingBytes < 0 {
		s.addTooManyBytes(port.Number)
		return nil
	}

	// Inside the cluster an external address is only another name of the Service.
	for _, a := range services.OfFamily(s.External, is4) {
		out = append(out, frontend{
			addr:           netip.AddrPortFrom(a, port.Number),
			external:       true,
			localAtRouters: s.ExternalLocal,
		})
	}

	if port.NodePort != 0 {
		for _, n := range s.nodes.list {
			for _, a := range services.OfFamily(n.nodePortAddresses, is4) {
				out = append(out, frontend{
					addr:            netip.AddrPortFrom(a, port.NodePort),
					node:            n,
					external:        true,
					localAtSwitches: s.ExternalLocal,
					localAtRouters:  s.ExternalLocal,
				})
			}
		}
	}

	return s.arbiter.grant(port.Protocol, out)
}

// lbSide is one of the two places of load balancers, with the traffic policy of a frontend there.
type lbSide struct {
	place     lbPlace // atSwitches or atRouters
	onlyLocal bool    // clients use only endpoints on their own node
}

// addFrontend adds a VIP for the frontend: one for all places if they have the same backends,
// otherwise one for switches and one for routers. If routers keep the client's address, they have
// one of their own, because that is an option of the load balancer.
func (s *service) addFrontend(collector *vipCollector, f frontend, t *targets) {
	switches := s.backendsByNode(f, t, lbSide{atSwitches, f.localAtSwitches})
	routers := s.backendsByNode(f, t, lbSide{atRouters, f.localAtRouters})

	if s.remainingBytes < 0 {
		s.addTooManyBytes(f.addr.Port())
		return
	}

	keepClient := f.external && f.localAtRouters && !t.mayBypassRouter(f)

	isUniform := len(switches.byNode) == 0 && len(routers.byNode) == 0 && switches.others == routers.others
	if isUniform && !keepClient {
		collector.uniform.add(lbScope{place: everywhere}, f.addr, switches.others)
		return
	}

	collector.add(lbScope{place: atSwitches}, f.addr, switches)
	collector.add(lbScope{place: atRouters, keepClient: keepClient}, f.addr, routers)
}

// addTooManyBytes adds to the shortfall that a port is not served, because remainingBytes is
// negative.
func (s *service) addTooManyBytes(port uint16) {
	s.shortfall.add("port %d: the service's load balancers would be longer than %d bytes",
		port, maxServiceBytes)
}

// backendsByNode returns the backends of the frontend on one side, and subtracts their length from
// remainingBytes. If these become negative, the result is incomplete and must not be used.
func (s *service) backendsByNode(f frontend, t *targets, side lbSide) nodeBackends {
	// A node port has the same backends for all clients, because it is always served on its own
	// node. For other frontends, f.node is nil: clients at no particular node.
	out := nodeBackends{others: t.backendsFor(f.node, side)}
	s.remainingBytes -= maxVIPBytes + len(out.others)

	if f.node != nil {
		return out
	}

	// Nodes of a zone have the same backends, and share a load balancer. Those that follow each other
	// are counted once.
	var last string

	for _, n := range t.mayDiffer(s.nodes.list, side) {
		if side.place == atRouters && !n.hasGatewayRouter {
			continue
		}

		if s.remainingBytes < 0 {
			return out
		}

		text := t.backendsFor(n, side)
		if text == out.others {
			continue
		}

		if out.byNode == nil {
			out.byNode = map[*serviceNode]string{}
		}

		out.byNode[n] = text
		if text != last {
			s.remainingBytes -= maxVIPBytes + len(text)
			last = text
		}
	}

	return out
}

// maxVIPBytes is the length of the longest VIP: an IPv6 address in brackets with its port.
const maxVIPBytes = 48

// add adds a VIP to the scope. If nodes differ, scopes divides it among them later.
func (v *vipCollector) add(scope lbScope, vip netip.AddrPort, backends nodeBackends) {
	if len(backends.byNode) == 0 {
		v.uniform.add(scope, vip, backends.others)
		return
	}

	scope.byNode = true
	v.differing[scope] = append(v.differing[scope], differingVIP{vip, backends})
}

// scopes returns all VIPs by their final scopes. nodes are all nodes.
func (v *vipCollector) scopes(nodes []*serviceNode) vipScopes {
	out := v.uniform
	for scope, vips := range v.differing {
		out.addDiffering(scope, vips, nodes)
	}

	return out
}

// addDiffering divides the nodes into groups that have the same backends for all of the VIPs, and
// adds a scope with the VIPs for each group. The group of the nodes that differ in none of the VIPs
// is scope itself. nodes are all nodes.
func (v vipScopes) addDiffering(scope lbScope, vips []differingVIP, nodes []*serviceNode) {
	differs := map[*serviceNode]bool{} // in at least one VIP

	for _, d := range vips {
		for n := range d.byNode {
			differs[n] = true
		}
	}

	groupScopes := map[string]lbScope{} // by the backends of all VIPs

	var others []*serviceNode

	for _, n := range nodes {
		if !differs[n] {
			others = append(others, n)
			continue
		}

		texts := make([]string, len(vips))
		for i, d := range vips {
			texts[i] = d.forNode(n)
		}

		allBackends := strings.Join(texts, " ")

		group, ok := groupScopes[allBackends]
		if !ok { // n is the first of its group
			group = scope
			group.node = n.name
			groupScopes[allBackends] = group

			for i, d := range vips {
				v.add(group, d.vip, texts[i])
			}
		}

		v[group].nodes = append(v[group].nodes, n)
	}

	for _, d := range vips {
		v.add(scope, d.vip, d.others)
	}

	v[scope].nodes = others
}
