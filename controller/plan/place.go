package plan

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// where identifies a load balancer of a service by its place: all switches and routers, all
// switches, all routers, certain nodes, or the nodes without a load balancer of their own.
type where struct {
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

func (w where) suffix() string {
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

// front is one address and port at which the service is served.
type front struct {
	addr netip.AddrPort
	of   *server // the node if it is a node port, or nil
	// external is set for fronts that clients outside of the cluster use.
	external bool
	// Only endpoints on the node where the client arrives are used.
	localAtSwitch, localAtRouter bool
}

// placements has, for one protocol, the VIPs of each place.
type placements map[where]*placed

type placed struct {
	vips  map[string]string // VIP → backends
	nodes []*server         // the nodes of the load balancer, if nodes differ
}

func (p placements) add(w where, vip netip.AddrPort, backends string) {
	if p[w] == nil {
		p[w] = &placed{vips: map[string]string{}}
	}

	p[w].vips[vip.String()] = backends
}

// answers holds the backends of the named nodes, and those of all other nodes.
type answers struct {
	others string
	by     map[*server]string
}

func (a answers) of(n *server) string {
	if text, ok := a.by[n]; ok {
		return text
	}

	return a.others
}

// difference is a front whose backends depend on the node.
type difference struct {
	vip netip.AddrPort
	answers
}

// place returns the placements of each protocol.
func (s *service) place() map[corev1.Protocol]placements {
	out := map[corev1.Protocol]placements{}
	differ := map[corev1.Protocol]map[where][]difference{}

	for _, port := range s.Ports {
		proto := port.Protocol

		served := servedPort{proto: proto, number: int(port.Number)}
		if out[proto] == nil {
			out[proto], differ[proto] = placements{}, map[where][]difference{}
		}

		for _, is4 := range []bool{true, false} {
			if fronts := s.fronts(port, is4); len(fronts) > 0 {
				t := newTargets(s.endpoints(port, is4), s.nodes)

				for _, f := range fronts {
					if f.external && f.of == nil {
						served.at = append(served.at, f.addr.Addr())
					}

					s.placeFront(out[proto], differ[proto], f, t)
				}
			}
		}

		s.served = append(s.served, served)
	}

	for proto, placed := range out {
		for at, list := range differ[proto] {
			placed.addDifferences(at, list, s.nodes.list)
		}
	}

	return out
}

// fronts returns the fronts of the port in one family that the service gets.
func (s *service) fronts(port services.Port, is4 bool) []front {
	var out []front
	for _, a := range services.OfFamily(s.ClusterIPs, is4) {
		out = append(out, front{
			addr:          netip.AddrPortFrom(a, port.Number),
			localAtSwitch: s.InternalLocal,
			localAtRouter: s.InternalLocal,
		})
	}

	if len(out) == 0 {
		return nil // the service does not have this family
	}

	if s.text < 0 {
		s.shortfall.add("port %d: the service's load balancers would be longer than %d bytes",
			port.Number, maxServiceText)

		return nil
	}

	// Inside the cluster an external address is only another name of the service.
	for _, a := range services.OfFamily(s.External, is4) {
		out = append(out, front{
			addr:          netip.AddrPortFrom(a, port.Number),
			external:      true,
			localAtRouter: s.ExternalLocal,
		})
	}

	if port.NodePort != 0 {
		for _, n := range s.nodes.list {
			for _, a := range services.OfFamily(n.nodePorts, is4) {
				out = append(out, front{
					addr: netip.AddrPortFrom(a, port.NodePort), of: n, external: true,
					localAtSwitch: s.ExternalLocal, localAtRouter: s.ExternalLocal,
				})
			}
		}
	}

	return s.claims.keep(port.Protocol, out)
}

// placeFront adds the front to the placements, or to differ where backends depend on the node.
func (s *service) placeFront(p placements, differ map[where][]difference, f front, t *targets) {
	switches := s.answers(f, t, f.localAtSwitch, false)
	routers := s.answers(f, t, f.localAtRouter, true)

	if s.text < 0 {
		s.shortfall.add("port %d: the service's load balancers would be longer than %d bytes",
			f.addr.Port(), maxServiceText)

		return
	}

	keep := f.external && f.localAtRouter && !t.answerByRouter(f)
	if len(switches.by) == 0 && len(routers.by) == 0 && switches.others == routers.others && !keep {
		p.add(where{}, f.addr, switches.others)
		return
	}

	for _, side := range []struct {
		where   where
		answers answers
	}{{where{kind: atSwitches}, switches}, {where{kind: atRouters, keepClient: keep}, routers}} {
		if len(side.answers.by) == 0 {
			p.add(side.where, f.addr, side.answers.others)
			continue
		}

		side.where.each = true
		differ[side.where] = append(differ[side.where], difference{f.addr, side.answers})
	}
}

// answers returns the backends by node, where they differ. A node port has the same backends for
// all clients, because it is always served on its own node.
func (s *service) answers(f front, t *targets, local, router bool) answers {
	if f.of != nil {
		out := answers{others: t.of(f.of, local, router)}
		s.text -= maxVIPText + len(out.others)

		return out
	}

	out := answers{others: t.of(nil, local, router)}
	s.text -= maxVIPText + len(out.others)

	var last string // nodes of a zone have the same backends

	for _, n := range t.special(s.nodes.list, local, router) {
		if router && !n.router {
			continue
		}

		if s.text < 0 {
			return out // it is not served
		}

		if text := t.of(n, local, router); text != out.others {
			if out.by == nil {
				out.by = map[*server]string{}
			}

			if out.by[n] = text; text != last {
				s.text, last = s.text-maxVIPText-len(text), text
			}
		}
	}

	return out
}

// maxVIPText is the length of an IPv6 address with its port.
const maxVIPText = 48

// addDifferences adds a load balancer with the whole list for nodes that differ in one of its
// fronts. Nodes with the same backends share it. The other nodes share one, too.
func (p placements) addDifferences(at where, list []difference, all []*server) {
	special := map[*server]struct{}{}

	for _, d := range list {
		for n := range d.by {
			special[n] = struct{}{}
		}
	}

	first := map[string]where{} // by all backends

	var others []*server

	for _, n := range all { // by name
		if _, ok := special[n]; !ok {
			others = append(others, n)
			continue
		}

		texts := make([]string, len(list))
		for i, d := range list {
			texts[i] = d.of(n)
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
func (p placed) parents(w where) (groups, switches, routers []string) {
	switch {
	case !w.each:
		return []string{[...]string{clusterLBGroup, switchLBGroup, routerLBGroup}[w.kind]}, nil, nil
	case w.kind == atSwitches:
		return nil, names(p.nodes, w.kind), nil
	}

	return nil, nil, names(p.nodes, w.kind)
}
