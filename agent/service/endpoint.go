package service

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// state is how willing an endpoint is, best last.
type state uint8

const (
	stateGone        state = iota // not serving
	stateServing                  // not ready, but what it has it serves
	stateTerminating              // serving and terminating: used where none is ready
	stateReady
)

type endpoint struct {
	addr        netip.AddrPort
	state       state
	node        string // "" if it is not said
	hints       *discoveryv1.EndpointHints
	hostNetwork bool
}

// local says whether the endpoint is on this node. One without a node's name is
// if it has an address of the host's own.
func (e endpoint) local(n *Node) bool { return e.hostNetwork || e.node == n.Name }

// endpoints returns those of one port and family, by address, each once in its
// best state: while a controller moves an endpoint from one slice to another
// it is in both. Those to which no connection may go are left out.
func endpoints(svc *corev1.Service, in []*discoveryv1.EndpointSlice, targets annotation.Targets, port corev1.ServicePort, is4 bool, n *Node) []endpoint {
	networks := annotation.Networks{Services: n.ServiceCIDRs, Join: n.JoinSubnets}
	kind := discoveryv1.AddressTypeIPv6
	if is4 {
		kind = discoveryv1.AddressTypeIPv4
	}
	var out []endpoint
	for _, s := range in {
		number, ok := targets.Port(s, port)
		if !ok || s.AddressType != kind {
			continue
		}
		trusted := annotation.Trusted(svc, s)
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			// Further addresses of an endpoint stand for the same, and consumers
			// may look at the first only (API of EndpointSlice).
			for _, a := range parse(is4, e.Addresses[:min(1, len(e.Addresses))]...) {
				addr := netip.AddrPortFrom(a, number)
				if networks.RefuseEndpoint(addr, port.Protocol, n.isHost(a), trusted) == "" {
					out = append(out, newEndpoint(e, addr, n))
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b endpoint) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return int(b.state) - int(a.state)
	})
	return slices.CompactFunc(out, func(a, b endpoint) bool { return a.addr == b.addr })
}

func newEndpoint(e *discoveryv1.Endpoint, addr netip.AddrPort, n *Node) endpoint {
	out := endpoint{addr: addr, state: stateOf(e.Conditions), hints: e.Hints}
	if e.NodeName != nil {
		out.node = *e.NodeName
	}
	out.hostNetwork = n.hostNetwork(addr.Addr(), out.node)
	return out
}

// stateOf: what is not said is true for ready and serving, false for terminating.
func stateOf(c discoveryv1.EndpointConditions) state {
	serving := c.Serving == nil || *c.Serving
	switch {
	case c.Ready == nil || *c.Ready:
		return stateReady
	case serving && c.Terminating != nil && *c.Terminating:
		return stateTerminating
	case serving:
		return stateServing
	}
	return stateGone
}

// usable returns the ready ones among those for which keep is true, or if there
// is none those that still serve while they terminate.
func usable(in []endpoint, keep func(endpoint) bool) []endpoint {
	for _, want := range []state{stateReady, stateTerminating} {
		var out []endpoint
		for _, e := range in {
			if e.state == want && keep(e) {
				out = append(out, e)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// near returns the test that the hints of a Service's ready endpoints ask
// for: those for this node if every one has a hint for nodes and one is for
// this node, else the same with zones, else all.
func near(in []endpoint, n *Node) func(endpoint) bool {
	for _, mode := range []struct {
		hints func(*discoveryv1.EndpointHints) []string
		want  string
	}{{nodeHints, n.Name}, {zoneHints, n.Zone}} {
		here := func(e endpoint) bool { return slices.Contains(mode.hints(e.hints), mode.want) }
		all, some := true, false
		for _, e := range in {
			if e.state == stateReady {
				all, some = all && len(mode.hints(e.hints)) > 0, some || here(e)
			}
		}
		if all && some {
			return here
		}
	}
	return func(endpoint) bool { return true }
}

func nodeHints(h *discoveryv1.EndpointHints) []string {
	var out []string
	if h != nil {
		for _, f := range h.ForNodes {
			out = append(out, f.Name)
		}
	}
	return out
}

func zoneHints(h *discoveryv1.EndpointHints) []string {
	var out []string
	if h != nil {
		for _, f := range h.ForZones {
			out = append(out, f.Name)
		}
	}
	return out
}

func addrs(in []endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range in {
		out = append(out, e.addr)
	}
	return out
}

// byName puts slices in an order of their own, so that the informers' does not
// matter.
func byName(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.SortedFunc(slices.Values(in), func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
}
