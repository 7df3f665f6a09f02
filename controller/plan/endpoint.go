package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// endpoints returns the endpoints of one service port and family. Endpoints that must not receive
// connections are left out and added to the shortfall.
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

// nodeOf returns the node that the slice names, or else the node that has the address.
func (s *servers) nodeOf(e services.Endpoint) *server {
	if e.Node != "" {
		return s.byName[e.Node]
	}

	return s.byAddr[e.Addr.Addr()]
}

// targets holds the endpoints of a service port and family, by the node of the client.
type targets struct {
	all      []services.Endpoint
	text     string                          // backends of all
	at       map[*server][]services.Endpoint // on each node
	hosts    map[*server]struct{}            // nodes with an endpoint at their own address
	apart    map[*server]struct{}            // nodes with an endpoint at a host address other than the router's
	hints    services.Hints
	zoneText map[string]string // backends of hints.Zones
}

func newTargets(all []services.Endpoint, nodes *servers) *targets {
	t := &targets{
		all:      all,
		text:     backends(all, nil),
		at:       map[*server][]services.Endpoint{},
		hosts:    map[*server]struct{}{},
		apart:    map[*server]struct{}{},
		hints:    services.NewHints(all),
		zoneText: map[string]string{},
	}
	for _, e := range all {
		if node := nodes.nodeOf(e); node != nil {
			t.at[node] = append(t.at[node], e)
		}

		switch n := nodes.byAddr[e.Addr.Addr()]; {
		case n == nil:
		case slices.Contains(n.own, e.Addr.Addr()):
			t.hosts[n] = struct{}{}
		default:
			t.apart[n] = struct{}{}
		}
	}

	for zone, near := range t.hints.Zones {
		t.zoneText[zone] = backends(near, nil)
	}

	return t
}

// backendsFor returns the backends for clients at the switch or router of node n. n is nil for
// clients at no particular node.
func (t *targets) backendsFor(n *server, local, router bool) string {
	_, host := t.hosts[n]

	mask := n
	if !router || !host {
		mask = nil // no address to translate
	}

	switch {
	case local && n == nil:
		return ""
	case local:
		return backends(t.at[n], mask)
	case n == nil:
		return t.text
	case len(t.hints.Nodes[n.name]) == 0 && mask == nil && t.zoneText[n.zone] != "": // the same as below, written once
		return t.zoneText[n.zone]
	}

	if near := t.hints.For(n.name, n.zone); len(near) > 0 {
		return backends(near, mask)
	}

	if mask == nil {
		return t.text
	}

	return backends(t.all, mask)
}

// answerByRouter reports whether a backend may be a host address that its gateway router does not
// own. If such a host saw the client's address, its replies would bypass the router and never be
// un-NATed.
func (t *targets) answerByRouter(f frontend) bool {
	if f.of == nil {
		return len(t.apart) > 0
	}

	_, ok := t.apart[f.of]

	return ok
}

// special returns the nodes whose backends may differ from those of other nodes.
func (t *targets) special(all []*server, local, router bool) []*server {
	var out []*server

	switch {
	case local:
		for n := range t.at {
			out = append(out, n)
		}
	case len(t.hints.Nodes) > 0 || len(t.hints.Zones) > 0:
		return all
	case router:
		for n := range t.hosts {
			out = append(out, n)
		}
	}

	return out
}

// backends returns the usable endpoints in OVN's format: sorted, separated by commas, "" if there
// are none. A node's router cannot send to the host behind its own address, so it uses the host's
// masquerade address. router is nil where this does not matter.
func backends(all []services.Endpoint, router *server) string {
	var addrs []netip.AddrPort

	for _, e := range services.Usable(all) {
		addr := e.Addr
		if router != nil && slices.Contains(router.own, addr.Addr()) {
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
