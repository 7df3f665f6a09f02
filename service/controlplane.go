package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// Server is a kind of server that every node needs.
type Server uint8

const (
	APIServer Server = iota + 1
	Database         // of OVN
)

// ControlPlane is the set of addresses and TCP ports by which nodes reach the servers that they
// need. No frontend is served there, because an agent that has lost its API server never learns
// that the Service was deleted. The zero value is empty. A ControlPlane is immutable.
type ControlPlane struct {
	servers map[netip.AddrPort]Server
	addrs   map[netip.Addr]struct{} // of servers
}

// NewControlPlane returns the servers at the given addresses, except those inside of the service
// networks: a cluster IP belongs to its own Service.
func NewControlPlane(kind Server, at []netip.AddrPort, services []netip.Prefix) ControlPlane {
	var c ControlPlane

	for _, ap := range at {
		a := ap.Addr().Unmap().WithZone("")
		if a.IsValid() && !a.IsUnspecified() && ap.Port() != 0 && !cluster.Contains(services, a) {
			c.add(netip.AddrPortFrom(a, ap.Port()), kind)
		}
	}

	return c
}

// add may only be called before the ControlPlane is returned to a caller.
func (c *ControlPlane) add(at netip.AddrPort, kind Server) {
	if c.servers == nil {
		c.servers, c.addrs = map[netip.AddrPort]Server{}, map[netip.Addr]struct{}{}
	}

	c.servers[at] = kind
	c.addrs[at.Addr()] = struct{}{}
}

// APIServers returns the API servers in the EndpointSlices of the Service default/kubernetes,
// which the API servers write themselves. Endpoints that are not ready count, too.
func APIServers(eps []*discoveryv1.EndpointSlice, services []netip.Prefix) ControlPlane {
	var at []netip.AddrPort

	for _, slice := range eps {
		for i := range slice.Ports {
			name, number, ok := targetPort(&slice.Ports[i])
			if !ok || Protocol(name.proto) != corev1.ProtocolTCP {
				continue
			}

			for j := range slice.Endpoints {
				for _, a := range endpointAddrs(&slice.Endpoints[j]) {
					at = append(at, netip.AddrPortFrom(a, number))
				}
			}
		}
	}

	return NewControlPlane(APIServer, at, services)
}

// IsAPIServerService reports whether the Service is default/kubernetes.
func IsAPIServerService(namespace, name string) bool {
	return namespace == corev1.NamespaceDefault && name == "kubernetes"
}

// With returns the servers of both. A server of c takes precedence.
func (c ControlPlane) With(o ControlPlane) ControlPlane {
	switch {
	case len(o.servers) == 0:
		return c
	case len(c.servers) == 0:
		return o
	}

	var out ControlPlane

	for _, part := range []ControlPlane{o, c} { // c last, so that its servers replace those of o
		for at, kind := range part.servers {
			out.add(at, kind)
		}
	}

	return out
}

// Equal reports whether both are the same.
func (c ControlPlane) Equal(o ControlPlane) bool { return maps.Equal(c.servers, o.servers) }

// Without returns the addresses of c's servers, except those at which o has a server of the same
// kind. They are sorted.
func (c ControlPlane) Without(o ControlPlane) []netip.AddrPort {
	var out []netip.AddrPort

	for at, kind := range c.servers {
		if o.servers[at] != kind {
			out = append(out, at)
		}
	}

	slices.SortFunc(out, netip.AddrPort.Compare)

	return out
}

// ServesAt reports whether a server has the TCP port at an address for which accept returns true.
func (c ControlPlane) ServesAt(port uint16, accept func(netip.Addr) bool) bool {
	for at := range c.servers {
		if at.Port() == port && accept(at.Addr()) {
			return true
		}
	}

	return false
}

// Keeps returns the reason why a frontend is reserved for the control plane, or "". At the
// addresses of its servers, KeptPorts are reserved as they are at the addresses of hosts.
func (c ControlPlane) Keeps(proto corev1.Protocol, at netip.AddrPort) string {
	if len(c.servers) == 0 {
		return ""
	}

	if Protocol(proto) == corev1.ProtocolTCP {
		switch c.servers[at] {
		case APIServer:
			return "it is the API server's"
		case Database:
			return "it is that of an OVN database"
		}
	}

	if _, isServer := c.addrs[at.Addr()]; isServer && IsKept(proto, at.Port()) {
		return "the address is that of a server of the control plane"
	}

	return ""
}

// String lists the servers, for logs.
func (c ControlPlane) String() string {
	var out []string
	for _, at := range c.Without(ControlPlane{}) {
		out = append(out, at.String())
	}

	return fmt.Sprint(out)
}
