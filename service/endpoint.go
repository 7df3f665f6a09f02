package service

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// State is the ability of an endpoint to take connections. Larger is better.
type State uint8

const (
	Gone        State = iota // does not serve
	Serving                  // not ready, but serves existing clients
	Terminating              // serves while it terminates; takes clients if no endpoint is ready
	Ready
)

// Endpoint is an endpoint of one port and family.
type Endpoint struct {
	Addr  netip.AddrPort
	State State
	Node  string // "" if the slice names none

	hints *discoveryv1.EndpointHints
}

// Endpoints returns the endpoints of one port and family, sorted by address. An endpoint may be
// in two slices while a controller moves it; the result has it once, in its better state.
// Endpoints to which no connection is allowed are skipped. If refuse is not nil, it is called
// with each of them and the reason. isHost reports whether an address belongs to a host.
func (s *Service) Endpoints(
	port Port,
	is4 bool,
	isHost func(netip.Addr) bool,
	refuse func(slice string, a netip.Addr, why string),
) []Endpoint {
	family := discoveryv1.AddressTypeIPv6
	if is4 {
		family = discoveryv1.AddressTypeIPv4
	}

	if s.targetPorts == nil {
		s.targetPorts = newTargets(s.endpointSlices)
	}

	var out []Endpoint

	for _, slice := range s.endpointSlices {
		number, ok := s.targetPorts.port(slice, port)
		if !ok || slice.AddressType != family {
			continue
		}

		writtenBy := s.authorOf(slice, number)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			for _, a := range OfFamily(endpointAddrs(e), is4) {
				addr := netip.AddrPortFrom(a, number)
				if why := s.cfg.refuseEndpoint(addr, port.Protocol, isHost, writtenBy); why == "" {
					out = append(out, newEndpoint(e, addr))
				} else if refuse != nil {
					refuse(slice.Name, a, why)
				}
			}
		}
	}

	slices.SortStableFunc(out, func(a, b Endpoint) int {
		if c := a.Addr.Compare(b.Addr); c != 0 {
			return c
		}

		return int(b.State) - int(a.State) // the better state first, which CompactFunc keeps
	})

	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}

// endpointAddrs returns the first address of an endpoint, or none if it is not an address. All
// addresses of an endpoint are equivalent, and consumers may use only the first one (API of
// EndpointSlice). Agents do not store the others.
func endpointAddrs(e *discoveryv1.Endpoint) []netip.Addr {
	return parseAddrs(e.Addresses[:min(1, len(e.Addresses))]...)
}

// ReadyOn returns the number of ready endpoints on a node, for the health check of a load
// balancer. An endpoint in several slices, or of both families, counts once.
func (s *Service) ReadyOn(node string) int {
	found := map[discoveryv1.AddressType]map[string]struct{}{
		discoveryv1.AddressTypeIPv4: {},
		discoveryv1.AddressTypeIPv6: {},
	}
	most := 0

	for _, slice := range s.endpointSlices {
		addresses := found[slice.AddressType]
		if addresses == nil {
			continue // neither IPv4 nor IPv6
		}

		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.NodeName != nil && *e.NodeName == node && stateOf(e.Conditions) == Ready &&
				len(e.Addresses) > 0 {
				addresses[e.Addresses[0]] = struct{}{}
			}
		}

		most = max(most, len(addresses))
	}

	return most
}

func newEndpoint(e *discoveryv1.Endpoint, addr netip.AddrPort) Endpoint {
	out := Endpoint{Addr: addr, State: stateOf(e.Conditions), hints: e.Hints}
	if e.NodeName != nil {
		out.Node = *e.NodeName
	}

	return out
}

// stateOf derives the state. A missing condition means true for ready and serving, and false for
// terminating.
func stateOf(c discoveryv1.EndpointConditions) State {
	serving := c.Serving == nil || *c.Serving
	switch {
	case c.Ready == nil || *c.Ready:
		return Ready
	case serving && c.Terminating != nil && *c.Terminating:
		return Terminating
	case serving:
		return Serving
	}

	return Gone
}

// Usable returns the endpoints that get new connections: the ready ones, or the terminating ones
// if none is ready. It returns at most MaxFrontendBackends.
func Usable(in []Endpoint) []Endpoint { return limitEndpoints(usableEndpoints(in)) }

// ExceedsBackends reports whether Usable leaves out endpoints because of the bound.
func ExceedsBackends(in []Endpoint) bool { return len(usableEndpoints(in)) > MaxFrontendBackends }

func usableEndpoints(in []Endpoint) []Endpoint {
	for _, want := range []State{Ready, Terminating} {
		var out []Endpoint

		for _, e := range in {
			if e.State == want {
				out = append(out, e)
			}
		}

		if len(out) > 0 {
			return out
		}
	}

	return nil
}

// limitEndpoints returns in, or MaxFrontendBackends of its endpoints in the same order. It chooses
// by a hash of the address, so the chosen ones are on all nodes and in all zones, and controller
// and agents choose the same. An endpoint that is added or removed changes at most one other
// choice.
func limitEndpoints(in []Endpoint) []Endpoint {
	if len(in) <= MaxFrontendBackends {
		return in
	}

	hashes := make(map[netip.AddrPort]uint32, len(in))
	for _, e := range in {
		hashes[e.Addr] = crc32.ChecksumIEEE([]byte(e.Addr.String()))
	}

	chosen := slices.Clone(in)
	slices.SortFunc(chosen, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(hashes[a.Addr], hashes[b.Addr]), a.Addr.Compare(b.Addr))
	})
	chosen = chosen[:MaxFrontendBackends]

	slices.SortFunc(chosen, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })

	return chosen
}

// Hints maps nodes and zones to the ready endpoints with a hint for them. A map is nil unless
// every ready endpoint has a hint of its kind (kube-proxy's topologyModeFromHints in 1.35).
type Hints struct{ Nodes, Zones map[string][]Endpoint }

// NewHints reads the hints of endpoints.
func NewHints(in []Endpoint) Hints {
	return Hints{
		Nodes: byHint(in, func(h *discoveryv1.EndpointHints) (names []string) {
			for _, n := range h.ForNodes {
				names = append(names, n.Name)
			}

			return names
		}),
		Zones: byHint(in, func(h *discoveryv1.EndpointHints) (names []string) {
			for _, z := range h.ForZones {
				names = append(names, z.Name)
			}

			return names
		}),
	}
}

// For returns the endpoints for clients on a node: those for the node, else those for its zone (""
// if it has none). A nil result means that hints do not apply.
func (h Hints) For(node, zone string) []Endpoint {
	if near := h.Nodes[node]; len(near) > 0 {
		return near
	}

	if zone == "" {
		return nil
	}

	return h.Zones[zone]
}

// byHint maps the names in the hints of ready endpoints to the endpoints with such a hint. It
// returns nil unless every ready endpoint has at least one.
func byHint(in []Endpoint, names func(*discoveryv1.EndpointHints) []string) map[string][]Endpoint {
	var out map[string][]Endpoint

	for _, e := range in {
		if e.State != Ready {
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
				out = map[string][]Endpoint{}
			}

			out[name] = append(out[name], e)
		}
	}

	return out
}

// refuseEndpoint returns the reason why connections must not go to the address of an endpoint, or
// "".
//
// The author of an EndpointSlice may put any address into it, and connections to it may have the
// node's address as source. The API server refuses only unspecified, loopback and link-local
// addresses.
func (c Config) refuseEndpoint(
	addr netip.AddrPort,
	proto corev1.Protocol,
	isHost func(netip.Addr) bool,
	writtenBy author,
) string {
	a := addr.Addr()
	switch {
	case !a.IsGlobalUnicast():
		return "not a global unicast address"
	case masquerade.Of(a.Is4()).Subnet.Contains(a):
		return "inside the masquerade network"
	case cluster.Contains(c.Services, a):
		return "inside the service network"
	case cluster.Contains(c.Join, a):
		return "inside the join network"
	case isTunnel(proto, addr.Port()) && (isHost(a) || len(c.Pods) > 0 && !cluster.Contains(c.Pods, a)):
		return fmt.Sprintf("%s port %d outside of the pods is the tunnels'", proto, addr.Port())
	case writtenBy != controlPlane && IsKept(proto, addr.Port()) && isHost(a):
		why := fmt.Sprintf("%s port %d of a node is the node's own", proto, addr.Port())
		if writtenBy == claimsControlPlane {
			why += "; if the pods of the Service use the host's network, install the chart's admission policies" +
				" and set --trust-endpoint-slices"
		}

		return why
	}

	return ""
}

// isTunnel reports whether packets to the protocol's port can be tunnel packets. OVN translates
// their source to the node's address, so another node would accept them as its peer's. This does
// not depend on the author of the slice. Not all addresses of tunnels are known: a node may have a
// separate one (--encap-ip).
func isTunnel(proto corev1.Protocol, port uint16) bool {
	return Protocol(proto) == corev1.ProtocolUDP && port == TunnelPort
}

// endpointSliceController is the manager of slices that the control plane creates for the pods of
// a Service's selector.
const endpointSliceController = "endpointslice-controller.k8s.io"

// apiServerPort is the usual port of API servers, which is one of the kept ports.
const apiServerPort = 6443

// author is who wrote an EndpointSlice, as far as it can be known. Only controlPlane may name the
// kept ports of hosts.
type author uint8

const (
	anyone             author = iota
	claimsControlPlane        // has the label of the control plane, which nothing protects
	controlPlane
)

// authorOf returns the author of a slice of the Service with endpoints at a port.
//
// A label is a claim. It is believed if the settings say that an admission policy protects it. The
// policy cannot protect slices that are older than itself. The controller corrects or deletes a
// forged one, but only if the Service has a selector.
//
// The API server itself writes the slice of default/kubernetes, without that label. Other users of
// that namespace may write it, too, and nothing tells them apart. They gain nothing by the API
// server's port, which every pod may reach.
func (s *Service) authorOf(slice *discoveryv1.EndpointSlice, port uint16) author {
	switch {
	case s.isAPIServer && port == apiServerPort:
		return controlPlane
	case !s.hasSelector || slice.Labels[discoveryv1.LabelManagedBy] != endpointSliceController:
		return anyone
	case !s.cfg.TrustEndpointSlices:
		return claimsControlPlane
	}

	return controlPlane
}

// byName returns the slices sorted by name, so that the result does not depend on informers. Like
// kube-proxy, it skips slices of headless Services and of other proxies: agents do not watch them.
func byName(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	out := slices.SortedFunc(slices.Values(in),
		func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })

	return slices.DeleteFunc(out, func(s *discoveryv1.EndpointSlice) bool {
		_, headless := s.Labels[corev1.IsHeadlessService]
		_, hasOtherProxy := s.Labels[ProxyNameLabel]

		return headless || hasOtherProxy
	})
}
