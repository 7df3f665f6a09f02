package plan

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// lbScope identifies a load balancer of a service by its scope: all switches and routers, all
// switches, all routers, certain nodes, or the nodes without a load balancer of their own.
type lbScope struct {
	kind       kind
	node       string // the first of certain nodes; "": all nodes, or the remaining ones
	each       bool   // nodes differ
	keepClient bool   // a router does not translate the client's address
}

type kind uint8

const (
	everywhere kind = iota
	atSwitches
	atRouters
)

func (w lbScope) suffix() string {
	text := [...]string{"cluster", "switches", "routers"}[w.kind]
	switch {
	case w.each && w.node == "":
		text += "_others"
	case w.each:
		text += "_node_" + w.node
	}

	if w.keepClient {
		text += "_local"
	}

	return text
}

// frontend is one address and port at which the service is served.
type frontend struct {
	addr netip.AddrPort
	of   *server // the node if it is a node port, or nil
	// external is set for frontends that clients outside of the cluster use.
	external bool
	// Only endpoints on the node where the client arrives are used.
	localAtSwitch, localAtRouter bool
}

// vipScopes has, for one protocol, the VIPs of each scope.
type vipScopes map[lbScope]*scopedVIPs

type scopedVIPs struct {
	vips  map[string]string // VIP → backends
	nodes []*server         // the nodes of the load balancer, if nodes differ
}

func (p vipScopes) add(w lbScope, vip netip.AddrPort, backends string) {
	if p[w] == nil {
		p[w] = &scopedVIPs{vips: map[string]string{}}
	}

	p[w].vips[vip.String()] = backends
}

// nodeBackends holds the backends of the named nodes, and those of all other nodes.
type nodeBackends struct {
	others string
	byNode map[*server]string
}

func (a nodeBackends) forNode(n *server) string {
	if text, ok := a.byNode[n]; ok {
		return text
	}

	return a.others
}

// difference is a frontend whose backends depend on the node.
type difference struct {
	vip netip.AddrPort
	nodeBackends
}

// vipsByScope returns the VIPs of each protocol by scope.
func (s *service) vipsByScope() map[corev1.Protocol]vipScopes {
	out := map[corev1.Protocol]vipScopes{}
	differ := map[corev1.Protocol]map[lbScope][]difference{}

	for _, port := range s.Ports {
		proto := port.Protocol

		served := servedPort{proto: proto, number: int(port.Number)}
		if out[proto] == nil {
			out[proto], differ[proto] = vipScopes{}, map[lbScope][]difference{}
		}

		for _, is4 := range []bool{true, false} {
			if fronts := s.frontends(port, is4); len(fronts) > 0 {
				t := newTargets(s.endpoints(port, is4), s.nodes)

				for _, f := range fronts {
					if f.external && f.of == nil {
						served.at = append(served.at, f.addr.Addr())
					}

					s.addFrontend(out[proto], differ[proto], f, t)
				}
			}
		}

		s.servedPorts = append(s.servedPorts, served)
	}

	for proto, byScope := range out {
		for at, list := range differ[proto] {
			byScope.addDifferences(at, list, s.nodes.list)
		}
	}

	return out
}

// frontends returns the frontends of the port in one family that the service gets.
func (s *service) frontends(port services.Port, is4 bool) []frontend {
	var out []frontend
	for _, a := range services.OfFamily(s.ClusterIPs, is4) {
		out = append(out, frontend{
			addr:          netip.AddrPortFrom(a, port.Number),
			localAtSwitch: s.InternalLocal,
			localAtRouter: s.InternalLocal,
		})
	}

	if len(out) == 0 {
		return nil // the service does not have this family
	}

	if s.remainingBytes < 0 {
		s.shortfall.add("port %d: the service's load balancers would be longer than %d bytes",
			port.Number, maxServiceBytes)

		return nil
	}

	// Inside the cluster an external address is only another name of the service.
	for _, a := range services.OfFamily(s.External, is4) {
		out = append(out, frontend{
			addr:          netip.AddrPortFrom(a, port.Number),
			external:      true,
			localAtRouter: s.ExternalLocal,
		})
	}

	if port.NodePort != 0 {
		for _, n := range s.nodes.list {
			for _, a := range services.OfFamily(n.nodePorts, is4) {
				out = append(out, frontend{
					addr: netip.AddrPortFrom(a, port.NodePort), of: n, external: true,
					localAtSwitch: s.ExternalLocal, localAtRouter: s.ExternalLocal,
				})
			}
		}
	}

	return s.claims.keepOwned(port.Protocol, out)
}

// addFrontend adds the frontend to the VIPs, or to differ where backends depend on the node.
func (s *service) addFrontend(p vipScopes, differ map[lbScope][]difference, f frontend, t *targets) {
	switches := s.nodeBackends(f, t, f.localAtSwitch, false)
	routers := s.nodeBackends(f, t, f.localAtRouter, true)

	if s.remainingBytes < 0 {
		s.shortfall.add("port %d: the service's load balancers would be longer than %d bytes",
			f.addr.Port(), maxServiceBytes)

		return
	}

	keep := f.external && f.localAtRouter && !t.answerByRouter(f)
	if len(switches.byNode) == 0 && len(routers.byNode) == 0 && switches.others == routers.others && !keep {
		p.add(lbScope{}, f.addr, switches.others)
		return
	}

	for _, side := range []struct {
		lbScope      lbScope
		nodeBackends nodeBackends
	}{{lbScope{kind: atSwitches}, switches}, {lbScope{kind: atRouters, keepClient: keep}, routers}} {
		if len(side.nodeBackends.byNode) == 0 {
			p.add(side.lbScope, f.addr, side.nodeBackends.others)
			continue
		}

		side.lbScope.each = true
		differ[side.lbScope] = append(differ[side.lbScope], difference{f.addr, side.nodeBackends})
	}
}

// nodeBackends returns the backends by node, where they differ. A node port has the same backends
// for all clients, because it is always served on its own node.
func (s *service) nodeBackends(f frontend, t *targets, local, router bool) nodeBackends {
	if f.of != nil {
		out := nodeBackends{others: t.backendsFor(f.of, local, router)}
		s.remainingBytes -= maxVIPBytes + len(out.others)

		return out
	}

	out := nodeBackends{others: t.backendsFor(nil, local, router)}
	s.remainingBytes -= maxVIPBytes + len(out.others)

	var last string // nodes of a zone have the same backends

	for _, n := range t.special(s.nodes.list, local, router) {
		if router && !n.router {
			continue
		}

		if s.remainingBytes < 0 {
			return out // it is not served
		}

		if text := t.backendsFor(n, local, router); text != out.others {
			if out.byNode == nil {
				out.byNode = map[*server]string{}
			}

			if out.byNode[n] = text; text != last {
				s.remainingBytes, last = s.remainingBytes-maxVIPBytes-len(text), text
			}
		}
	}

	return out
}

// maxVIPBytes is the length of an IPv6 address with its port.
const maxVIPBytes = 48

// addDifferences adds a load balancer with the whole list for nodes that differ in one of its
// frontends. Nodes with the same backends share it. The other nodes share one, too.
func (p vipScopes) addDifferences(at lbScope, list []difference, all []*server) {
	special := map[*server]struct{}{}

	for _, d := range list {
		for n := range d.byNode {
			special[n] = struct{}{}
		}
	}

	first := map[string]lbScope{} // by all backends

	var others []*server

	for _, n := range all { // by name
		if _, ok := special[n]; !ok {
			others = append(others, n)
			continue
		}

		texts := make([]string, len(list))
		for i, d := range list {
			texts[i] = d.forNode(n)
		}

		same := strings.Join(texts, " ")

		w, ok := first[same]
		if !ok {
			w = at
			w.node = n.name
			first[same] = w

			for i, d := range list {
				p.add(w, d.vip, texts[i])
			}
		}

		p[w].nodes = append(p[w].nodes, n)
	}

	for _, d := range list {
		p.add(at, d.vip, d.others)
	}

	p[at].nodes = others
}

// parents returns the rows that refer to the load balancer.
func (p scopedVIPs) parents(w lbScope) (groups, switches, routers []string) {
	switch {
	case !w.each:
		return []string{[...]string{clusterLBGroup, switchLBGroup, routerLBGroup}[w.kind]}, nil, nil
	case w.kind == atSwitches:
		return nil, names(p.nodes, w.kind), nil
	}

	return nil, nil, names(p.nodes, w.kind)
}
