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
	// MaxSourcePrefixes bounds the prefixes that cover the addresses outside the source ranges of
	// a family. If they are more, no client may connect.
	MaxSourcePrefixes = 16384
	MaxHostPorts      = 1024 // of a pod

	// MaxFrontendBackends bounds the backends of one frontend. Each backend is a bucket of an
	// OpenFlow group, and ovs-vswitchd aborts when a client asks for the description of a group
	// that does not fit the 64 KiB of an OpenFlow message. A bucket takes up to 128 bytes: IPv6,
	// at a gateway router, in OpenFlow 1.1 to 1.4. The bound leaves room for 160 bytes, because
	// later versions of OVN may add actions (TestLargestGroup in controller/nb).
	MaxFrontendBackends = 400
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
func servicePorts(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice) []corev1.ServicePort {
	const clusterIPs = 2 // at most, one of each family

	addresses := clusterIPs + len(externalIPs(svc)) + len(ingress(svc))

	endpoints := 1 // so that the quotient below is finite
	for _, s := range endpointSlices {
		endpoints += len(s.Endpoints)
	}

	// One port is always within the bounds, however many endpoints it has.
	limit := min(MaxServicePorts, MaxServiceFronts/addresses, max(1, MaxBackends/endpoints))

	return svc.Spec.Ports[:min(len(svc.Spec.Ports), limit)]
}

// KeptPort is a port that is kept for the hosts: no Service and no pod gets it at any address of a
// host.
type KeptPort struct {
	Protocol corev1.Protocol // TCP or UDP
	Number   uint16
}

// TunnelPort is the UDP port of Geneve, by which OVN's tunnels connect the nodes.
const TunnelPort = 6081

// keptTCP returns the kept TCP ports:
//   - ssh, kubelet, API server and etcd, which keep a node reachable when everything else fails;
//   - the health checks of agent and controller, by which kubelet judges them;
//   - OVN's databases: 6641 Northbound, 6642 Southbound for the nodes and 6645 for the controller,
//     6643 and 6644 between the members of each.
func keptTCP() []uint16 {
	return []uint16{22, 10250, 6443, 2379, 2380, 9409, 9410, 10256, 6641, 6642, 6643, 6644, 6645}
}

// KeptPorts returns the ports that no Service and no pod gets at any address of a host.
func KeptPorts() []KeptPort {
	var out []KeptPort
	for _, port := range keptTCP() {
		out = append(out, KeptPort{corev1.ProtocolTCP, port})
	}

	return append(out, KeptPort{corev1.ProtocolUDP, TunnelPort})
}

// IsKept reports whether the protocol's port is one of KeptPorts.
func IsKept(proto corev1.Protocol, port uint16) bool {
	switch Protocol(proto) {
	case corev1.ProtocolTCP:
		return slices.Contains(keptTCP(), port)
	case corev1.ProtocolUDP:
		return port == TunnelPort
	}

	return false
}

// Keeps reports whether a frontend is reserved for the node itself: one of KeptPorts at an
// address of a host. isHost reports whether an interface of a host has an address. Other hosts do
// not publish their link-local addresses, so each link-local address counts as an address of a
// host.
func Keeps(proto corev1.Protocol, at netip.AddrPort, isHost func(netip.Addr) bool) bool {
	if !IsKept(proto, at.Port()) {
		return false
	}

	a := at.Addr()

	return IsOwn(a, isHost) || a.IsLinkLocalUnicast()
}
