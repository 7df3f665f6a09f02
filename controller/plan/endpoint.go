package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// endpoints returns the endpoints of one service port and family that new or established
// connections use. Endpoints that must not receive connections are left out and added to the
// shortfall.
func (s *service) endpoints(port services.Port, is4 bool) []services.Endpoint {
	all := s.Endpoints(port, is4, s.nodes.isHost, func(slice string, a netip.Addr, why string) {
		s.shortfall.add("endpoint %s of slice %s: %s", a, slice, why)
	})
	if services.ExceedsBackends(all) {
		s.addReducedFamily(is4)
	}

	return slices.DeleteFunc(all, func(e services.Endpoint) bool { return e.State < services.Terminating })
}

// addReducedFamily adds to the shortfall, once for each family, that frontends use some endpoints
// only.
func (s *service) addReducedFamily(is4 bool) {
	family := services.FamilyName(is4)
	if slices.Contains(s.reducedFamilies, family) {
		return
	}

	s.reducedFamilies = append(s.reducedFamilies, family)
	s.shortfall.add("more than %d %s endpoints: each frontend uses at most %d of them",
		services.MaxFrontendBackends, family, services.MaxFrontendBackends)
}

// targets has the endpoints of one port and family of a Service, and which of them the clients at
// each node use. Texts are in the format of backends.
type targets struct {
	all      []services.Endpoint
	allText  string                               // backends of all
	byNode   map[*serviceNode][]services.Endpoint // by the node that they are on
	hints    services.Hints                       // topology hints of EndpointSlices
	zoneText map[string]string                    // backends of hints.Zones

	// Nodes with an endpoint at an address that their gateway router and their host have in common.
	atSharedAddress map[*serviceNode]struct{}
	// Nodes with an endpoint at another address of their host.
	atHostAddress map[*serviceNode]struct{}
}

// newTargets returns the targets with the given endpoints. nodes may be empty if the Service does
// not depend on nodes.
func newTargets(all []services.Endpoint, nodes *serviceNodes) *targets {
	t := &targets{
		all:             all,
		allText:         backends(all, nil),
		byNode:          map[*serviceNode][]services.Endpoint{},
		hints:           services.NewHints(all),
		zoneText:        map[string]string{},
		atSharedAddress: map[*serviceNode]struct{}{},
		atHostAddress:   map[*serviceNode]struct{}{},
	}
	for _, e := range all {
		if node := nodes.nodeOf(e); node != nil {
			t.byNode[node] = append(t.byNode[node], e)
		}

		switch n := nodes.byAddr[e.Addr.Addr()]; {
		case n == nil:
		case slices.Contains(n.sharedAddresses, e.Addr.Addr()):
			t.atSharedAddress[n] = struct{}{}
		default:
			t.atHostAddress[n] = struct{}{}
		}
	}

	for zone, near := range t.hints.Zones {
		t.zoneText[zone] = backends(near, nil)
	}

	return t
}

// backendsFor returns the backends for clients of node n, at its switch or its router: the
// endpoints on the node itself if only these are allowed, otherwise those that hints name for the
// node or its zone, otherwise all. If n is nil, the clients are at no particular node. They use all
// endpoints, or none if only those of their own node are allowed.
func (t *targets) backendsFor(n *serviceNode, side lbSide) string {
	// The node whose own address must be replaced, see backends.
	var router *serviceNode
	if _, ok := t.atSharedAddress[n]; ok && side.place == atRouters {
		router = n
	}

	switch {
	case side.onlyLocal && n == nil:
		return ""
	case side.onlyLocal:
		return backends(t.byNode[n], router)
	case n == nil:
		return t.allText
	}

	// Without hints for the node itself, all nodes of a zone use the same text, which is made once.
	if router == nil && len(t.hints.Nodes[n.name]) == 0 && t.zoneText[n.zone] != "" {
		return t.zoneText[n.zone]
	}

	if near := t.hints.For(n.name, n.zone); len(near) > 0 {
		return backends(near, router)
	}

	if router == nil {
		return t.allText
	}

	return backends(t.all, router)
}

// mayBypassRouter reports whether replies to the frontend's clients may bypass the gateway router,
// which would not translate their source back to the frontend. That happens if a backend is an
// address of a host that the router does not share. Such a host must not see the client's address.
func (t *targets) mayBypassRouter(f frontend) bool {
	if f.node == nil {
		return len(t.atHostAddress) > 0
	}

	_, ok := t.atHostAddress[f.node]

	return ok
}

// mayDiffer returns the nodes whose backends on this side may differ from backendsFor(nil, side).
// all are all nodes.
func (t *targets) mayDiffer(all []*serviceNode, side lbSide) []*serviceNode {
	switch {
	case side.onlyLocal:
		return slices.Collect(maps.Keys(t.byNode))
	case len(t.hints.Nodes) > 0 || len(t.hints.Zones) > 0:
		return all
	case side.place == atRouters:
		return slices.Collect(maps.Keys(t.atSharedAddress))
	}

	return nil
}

// backends returns the usable endpoints in OVN's format (column vips of Load_Balancer): sorted,
// separated by commas, "" if there are none. A node's router cannot send to the host behind its own
// address, so it uses the host's masquerade address. router is nil where this does not matter.
func backends(endpoints []services.Endpoint, router *serviceNode) string {
	var addrs []netip.AddrPort

	for _, e := range services.Usable(endpoints) {
		addr := e.Addr
		if router != nil && slices.Contains(router.sharedAddresses, addr.Addr()) {
			addr = netip.AddrPortFrom(masquerade.Of(addr.Addr().Is4()).Host, addr.Port())
		}

		addrs = append(addrs, addr)
	}

	slices.SortFunc(addrs, netip.AddrPort.Compare)

	var b strings.Builder

	for i, addr := range slices.Compact(addrs) {
		if i > 0 {
			b.WriteByte(',')
		}

		b.WriteString(addr.String())
	}

	return b.String()
}
