package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Bounds of one Service or pod, whose fields multiply. The excess is refused.
const (
	MaxServicePorts  = 1024
	MaxExternalIPs   = 64      // of spec.externalIPs, and separately of the load balancer
	MaxServiceFronts = 8192    // ports times addresses, without node addresses
	MaxBackends      = 1 << 17 // ports times endpoints
	MaxSourceRanges  = 4096
	// MaxSourcePrefixes bounds the prefixes that cover the addresses outside the source ranges of a
	// family. If they are more, no client may connect.
	MaxSourcePrefixes = 16384
	MaxHostPorts      = 1024 // of a pod
)

// externalIPs returns the Service's external IPs within the bounds.
func externalIPs(svc *corev1.Service) []string {
	return svc.Spec.ExternalIPs[:min(len(svc.Spec.ExternalIPs), MaxExternalIPs)]
}

// ingress returns the entries of the Service's load balancer within the bounds.
func ingress(svc *corev1.Service) []corev1.LoadBalancerIngress {
	all := svc.Status.LoadBalancer.Ingress
	return all[:min(len(all), MaxExternalIPs)]
}

// ingressIPs returns the load balancer's addresses. It skips addresses with ipMode Proxy, because
// such a load balancer sends to node ports or endpoints itself.
func ingressIPs(svc *corev1.Service) []string {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	var out []string
	for _, i := range ingress(svc) {
		if i.IP != "" && (i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP) {
			out = append(out, i.IP)
		}
	}
	return out
}

// servicePorts returns the Service's first ports, up to the bounds.
func servicePorts(svc *corev1.Service, slices []*discoveryv1.EndpointSlice) []corev1.ServicePort {
	addresses, endpoints := 2+len(externalIPs(svc))+len(ingress(svc)), 1
	for _, s := range slices {
		endpoints += len(s.Endpoints)
	}
	most := min(MaxServicePorts, MaxServiceFronts/addresses, max(1, MaxBackends/endpoints))
	return svc.Spec.Ports[:min(len(svc.Spec.Ports), most)]
}

// KeptPorts returns the TCP ports that no Service or pod gets on any address of a host: ssh,
// kubelet, API server and etcd, which keep a node reachable when everything else fails, and the
// health checks of agent and controller, by which kubelet judges them.
func KeptPorts() []uint16 { return []uint16{22, 10250, 6443, 2379, 2380, 9409, 9410, 10256} }

// IsKept reports whether the protocol's port is one of KeptPorts.
func IsKept(proto corev1.Protocol, port uint16) bool {
	return Protocol(proto) == corev1.ProtocolTCP && slices.Contains(KeptPorts(), port)
}

// Keeps reports whether a frontend is reserved for the node itself. isHost reports whether an
// interface of a host has an address. Other hosts do not publish their link-local addresses, so each
// link-local address counts as an address of a host.
func Keeps(proto corev1.Protocol, at netip.AddrPort, isHost func(netip.Addr) bool) bool {
	if !IsKept(proto, at.Port()) {
		return false
	}
	a := at.Addr()
	return IsOwn(a, isHost) || a.IsLinkLocalUnicast()
}
