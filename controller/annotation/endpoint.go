package annotation

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TargetPort is the port that the slice's endpoints have for a service port:
// the API server's controller has resolved names, per slice. Agent and
// controller read it alike.
func TargetPort(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	want := targetName{port.Name, Protocol(port.Protocol)}
	for i := range slice.Ports {
		if name, number, ok := target(&slice.Ports[i]); ok && name == want {
			return number, true
		}
	}
	return 0, false
}

// Targets are what TargetPort returns for slices with many ports: looked up once for each
// port of a Service, each a search would cost the product of both.
type Targets map[*discoveryv1.EndpointSlice]map[targetName]uint16

type targetName struct {
	name  string
	proto corev1.Protocol
}

// fewPorts are found as quickly by looking at each.
const fewPorts = 8

// NewTargets reads the slices' ports.
func NewTargets(slices []*discoveryv1.EndpointSlice) Targets {
	out := Targets{}
	for _, s := range slices {
		if len(s.Ports) <= fewPorts {
			continue
		}
		of := make(map[targetName]uint16, len(s.Ports))
		for i := range s.Ports {
			name, number, ok := target(&s.Ports[i])
			if _, again := of[name]; ok && !again { // the first counts
				of[name] = number
			}
		}
		out[s] = of
	}
	return out
}

// Port is TargetPort.
func (t Targets) Port(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	of, many := t[slice]
	if !many {
		return TargetPort(slice, port)
	}
	number, ok := of[targetName{port.Name, Protocol(port.Protocol)}]
	return number, ok
}

// target is false for a port without a number.
func target(p *discoveryv1.EndpointPort) (name targetName, number uint16, ok bool) {
	name.proto = corev1.ProtocolTCP
	if p.Name != nil {
		name.name = *p.Name
	}
	if p.Protocol != nil {
		name.proto = *p.Protocol
	}
	if p.Port == nil || *p.Port <= 0 || *p.Port > 65535 {
		return name, 0, false
	}
	return name, uint16(*p.Port), true
}

// Protocol is what a port's protocol means: TCP if it does not say one.
func Protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// Networks are those in which no endpoint of a Service is, beside the masquerade networks.
type Networks struct{ Services, Join []netip.Prefix }

// RefuseEndpoint returns why a Service's connections must not go to an address that an
// EndpointSlice names, "" if they may. host reports whether the address is a host's,
// trusted whether the slice is (Trusted). Controller and agents must agree.
//
// Whoever may write an EndpointSlice names any address in it, and the connection may then
// seem to come from the node. The API server refuses the unspecified address, loopback
// and link-local ones; the others it lets pass.
func (n Networks) RefuseEndpoint(addr netip.AddrPort, proto corev1.Protocol, host, trusted bool) string {
	a := addr.Addr()
	in := func(prefixes ...netip.Prefix) bool {
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	switch {
	case !a.IsGlobalUnicast() || a.Zone() != "":
		return "not a global unicast address"
	case in(MasqueradeOf(a.Is4()).Subnet):
		return "inside the masquerade network"
	case in(n.Services...):
		return "inside the service network"
	case in(n.Join...):
		return "inside the join network"
	case host && !trusted && IsKept(proto, addr.Port()):
		return fmt.Sprintf("%s port %d of a node is the node's own", Protocol(proto), addr.Port())
	}
	return ""
}

// endpointSliceController is the manager of slices that the control plane makes of the
// pods that a Service's selector means.
const endpointSliceController = "endpointslice-controller.k8s.io"

// Trusted reports whether the slice is the control plane's: of the API server itself, or
// made of the pods that the Service selects. A slice that somebody else writes under
// that name is put right or deleted by its controller, but only if there is a selector.
func Trusted(svc *corev1.Service, slice *discoveryv1.EndpointSlice) bool {
	if svc.Namespace == corev1.NamespaceDefault && svc.Name == "kubernetes" {
		return true
	}
	return len(svc.Spec.Selector) > 0 && slice.Labels[discoveryv1.LabelManagedBy] == endpointSliceController
}
