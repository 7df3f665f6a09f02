package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// endpoints are those of one service port and family. Those to which no connection may go are left
// out, and the shortfall says so.
func (s *service) endpoints(port services.Port, is4 bool) []services.Endpoint {
	all := s.Endpoints(port, is4, s.nodes.isHost, func(slice string, a netip.Addr, why string) {
		s.shortfall.add("endpoint %s of slice %s: %s", a, slice, why)
	})
	return slices.DeleteFunc(all, func(e services.Endpoint) bool { return e.State < services.Terminating })
}

// nodeOf is the node that the slice says, else the one that has the address.
func (s *servers) nodeOf(e services.Endpoint) *server {
	if e.Node != "" {
		return s.byName[e.Node]
	}
	return s.byAddr[e.Addr.Addr()]
}

// targets are the endpoints of a service port and family, by the clients' node.
type targets struct {
	all      []services.Endpoint
	text     string                          // backends of all
	at       map[*server][]services.Endpoint // on each node
	hosts    map[*server]struct{}            // nodes whose own address is one
	apart    map[*server]struct{}            // nodes of which another address is one than the router's
	hints    services.Hints
	zoneText map[string]string // backends of hints.Zones
}

func newTargets(all []services.Endpoint, nodes *servers) *targets {
	t := &targets{
		all: all, text: backends(all, nil), at: map[*server][]services.Endpoint{}, hosts: map[*server]struct{}{}, apart: map[*server]struct{}{},
		hints: services.NewHints(all), zoneText: map[string]string{},
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

// of are the backends for who asks at the node's switch or router; for a client
// at no particular node n is nil.
func (t *targets) of(n *server, local, router bool) string {
	_, host := t.hosts[n]
	mask := n
	if !router || !host {
		mask = nil // nothing to translate
	}
	switch {
	case local && n == nil:
		return ""
	case local:
		return backends(t.at[n], mask)
	case n == nil:
		return t.text
	case len(t.hints.Nodes[n.name]) == 0 && mask == nil && n.zone != "" && t.zoneText[n.zone] != "":
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

// answerByRouter says whether what answers a client of the front may be a host by an
// address that is not its router's. If it saw the client's address it would answer by
// a way of its own, on which nobody turns the answer into the front's.
func (t *targets) answerByRouter(f front) bool {
	if f.of == nil {
		return len(t.apart) > 0
	}
	_, ok := t.apart[f.of]
	return ok
}

// special are the nodes whose answer may not be everyone's.
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

// backends are the usable endpoints as OVN writes them: sorted, separated by commas, "" if there
// are none. The router of a node cannot send to the host behind its own address: it takes the
// host's masquerade address; router is nil where that does not matter.
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
