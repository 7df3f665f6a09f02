package plan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// endpoint is one of a service port that may be given connections.
type endpoint struct {
	addr  netip.AddrPort
	node  *server // nil where nobody said, or the node has no switch
	ready bool    // else it is on its way out, but still serves
	hints *discoveryv1.EndpointHints
}

// endpoints are those of one service port and family, each once: while it is moved
// from one slice to another it is in both. Whether one that is
// not ready is to be used, as a publisher may want, the slice has settled. Those to which
// no connection may go are left out, and the shortfall says so.
func (s *service) endpoints(port corev1.ServicePort, is4 bool) []endpoint {
	kind := discoveryv1.AddressTypeIPv6
	if is4 {
		kind = discoveryv1.AddressTypeIPv4
	}
	var out []endpoint
	for _, slice := range s.slices {
		number, ok := s.targets.Port(slice, port)
		if !ok || slice.AddressType != kind {
			continue
		}
		trusted := annotation.Trusted(s.obj, slice)
		for i := range slice.Endpoints {
			ep := &slice.Endpoints[i]
			ready := ep.Conditions.Ready == nil || *ep.Conditions.Ready
			if !ready && !leaving(ep.Conditions) {
				continue
			}
			// Further addresses of an endpoint stand for the same, and consumers
			// may look at the first only (API of EndpointSlice).
			for _, a := range ofFamily(parseAddrs(ep.Addresses[:min(1, len(ep.Addresses))], ""), is4) {
				addr := netip.AddrPortFrom(a, number)
				if why := s.networks.RefuseEndpoint(addr, port.Protocol, s.nodes.isHost(a), trusted); why != "" {
					s.shortfall.add("endpoint %s of slice %s: %s", a, slice.Name, why)
					continue
				}
				out = append(out, endpoint{addr, nodeOf(ep, a, s.nodes), ready, ep.Hints})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b endpoint) int {
		if c := a.addr.Compare(b.addr); c != 0 || a.ready == b.ready {
			return c
		}
		if a.ready {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(out, func(a, b endpoint) bool { return a.addr == b.addr })
}

func leaving(c discoveryv1.EndpointConditions) bool {
	return (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating
}

// nodeOf is where the endpoint is said to be, or whose address it has.
func nodeOf(ep *discoveryv1.Endpoint, a netip.Addr, nodes *servers) *server {
	if ep.NodeName != nil {
		if n := nodes.byName[*ep.NodeName]; n != nil {
			return n
		}
	}
	return nodes.byAddr[a]
}

// targets are the endpoints of a service port and family, by who asks for them.
type targets struct {
	all    []endpoint
	text   string                 // backends of all
	at     map[*server][]endpoint // on each node
	hosts  map[*server]struct{}   // nodes whose own address is one
	apart  map[*server]struct{}   // nodes of which another address is one than the router's
	hinted                        // near each node
}

// hinted are endpoints by the hints of EndpointSlices; empty where those are not
// to be followed, which is unless every ready endpoint has one (kube-proxy's
// topologyModeFromHints in 1.35).
type hinted struct {
	nodes, zones map[string][]endpoint
	zoneText     map[string]string
}

func newTargets(eps []endpoint, nodes *servers) *targets {
	t := &targets{all: eps, text: backends(eps, nil), at: map[*server][]endpoint{}, hosts: map[*server]struct{}{}, apart: map[*server]struct{}{}}
	for _, e := range eps {
		if e.node != nil {
			t.at[e.node] = append(t.at[e.node], e)
		}
		switch n := nodes.byAddr[e.addr.Addr()]; {
		case n == nil:
		case slices.Contains(n.own, e.addr.Addr()):
			t.hosts[n] = struct{}{}
		default:
			t.apart[n] = struct{}{}
		}
	}
	t.nodes = byHint(eps, func(h *discoveryv1.EndpointHints) (names []string) {
		for _, n := range h.ForNodes {
			names = append(names, n.Name)
		}
		return names
	})
	t.zones = byHint(eps, func(h *discoveryv1.EndpointHints) (names []string) {
		for _, z := range h.ForZones {
			names = append(names, z.Name)
		}
		return names
	})
	t.zoneText = map[string]string{}
	for zone, eps := range t.zones {
		t.zoneText[zone] = backends(eps, nil)
	}
	return t
}

// byHint returns the ready endpoints by the names in their hints, none if one
// has no hint.
func byHint(eps []endpoint, names func(*discoveryv1.EndpointHints) []string) map[string][]endpoint {
	var out map[string][]endpoint
	for _, e := range eps {
		if !e.ready {
			continue
		}
		if e.hints == nil {
			return nil
		}
		list := names(e.hints)
		if len(list) == 0 {
			return nil
		}
		for _, name := range list {
			if out == nil {
				out = map[string][]endpoint{}
			}
			out[name] = append(out[name], e)
		}
	}
	return out
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
	case len(t.nodes[n.name]) > 0:
		return backends(t.nodes[n.name], mask)
	case n.zone != "" && len(t.zones[n.zone]) > 0:
		if mask == nil {
			return t.zoneText[n.zone]
		}
		return backends(t.zones[n.zone], mask)
	case mask == nil:
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
	case len(t.nodes) > 0 || len(t.zones) > 0:
		return all
	case router:
		for n := range t.hosts {
			out = append(out, n)
		}
	}
	return out
}

// backends are the endpoints as OVN writes them: sorted, separated by commas, ""
// if there are none. Where none is ready, those on their way out are used.
// The router of a node cannot send to the host behind its own address: it takes the
// host's masquerade address; router is nil where that does not matter.
func backends(eps []endpoint, router *server) string {
	var ready, rest []netip.AddrPort
	for _, e := range eps {
		addr := e.addr
		if router != nil && slices.Contains(router.own, addr.Addr()) {
			addr = netip.AddrPortFrom(annotation.MasqueradeOf(addr.Addr().Is4()).Host, addr.Port())
		}
		if e.ready {
			ready = append(ready, addr)
		} else {
			rest = append(rest, addr)
		}
	}
	if len(ready) == 0 {
		ready = rest
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	var b strings.Builder
	for i, addr := range slices.Compact(ready) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(addr.String())
	}
	return b.String()
}
