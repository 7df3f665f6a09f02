package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Bounds of one Service or pod, whose fields multiply. What exceeds them is refused.
const (
	MaxServicePorts  = 1024
	MaxExternalIPs   = 64      // of spec.externalIPs, and as many of the load balancer
	MaxServiceFronts = 8192    // ports times addresses, without those of nodes
	MaxBackends      = 1 << 18 // ports times endpoints
	MaxSourceRanges  = 4096
	MaxHostPorts     = 1024 // of a pod
)

// externalIPs are the Service's external IPs within the bounds.
func externalIPs(svc *corev1.Service) []string {
	return svc.Spec.ExternalIPs[:min(len(svc.Spec.ExternalIPs), MaxExternalIPs)]
}

// ingress is what the Service's load balancer announces within the bounds.
func ingress(svc *corev1.Service) []corev1.LoadBalancerIngress {
	all := svc.Status.LoadBalancer.Ingress
	return all[:min(len(all), MaxExternalIPs)]
}

// ingressIPs returns the load balancer's addresses. Addresses with ipMode Proxy are left out: such
// a load balancer sends to node ports or endpoints itself.
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

// servicePorts are the Service's first ports, as many as are within the bounds.
func servicePorts(svc *corev1.Service, slices []*discoveryv1.EndpointSlice) []corev1.ServicePort {
	addresses, endpoints := 2+len(externalIPs(svc))+len(ingress(svc)), 1
	for _, s := range slices {
		endpoints += len(s.Endpoints)
	}
	most := min(MaxServicePorts, MaxServiceFronts/addresses, max(1, MaxBackends/endpoints))
	return svc.Spec.Ports[:min(len(svc.Spec.Ports), most)]
}
