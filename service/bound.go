package service

import (
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
