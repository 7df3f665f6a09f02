package annotation

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Bounds of one Service or pod, whose fields multiply. What exceeds them is not served. The
// controller says so; controller and agents must agree.
const (
	MaxServicePorts  = 1024
	MaxExternalIPs   = 64      // of spec.externalIPs, and as many of the load balancer
	MaxServiceFronts = 8192    // ports times addresses, without those of nodes
	MaxBackends      = 1 << 18 // ports times endpoints
	MaxSourceRanges  = 4096
	MaxHostPorts     = 1024 // of a pod
)

// ExternalIPs are the Service's external IPs within the bounds.
func ExternalIPs(svc *corev1.Service) []string {
	return svc.Spec.ExternalIPs[:min(len(svc.Spec.ExternalIPs), MaxExternalIPs)]
}

// Ingress is what the Service's load balancer announces within the bounds.
func Ingress(svc *corev1.Service) []corev1.LoadBalancerIngress {
	all := svc.Status.LoadBalancer.Ingress
	return all[:min(len(all), MaxExternalIPs)]
}

// ServicePorts are the Service's first ports, as many as are within the bounds. Its
// endpoint slices are all or, where nobody is served yet, none.
func ServicePorts(svc *corev1.Service, slices []*discoveryv1.EndpointSlice) []corev1.ServicePort {
	addresses, endpoints := 2+len(ExternalIPs(svc))+len(Ingress(svc)), 1
	for _, s := range slices {
		endpoints += len(s.Endpoints)
	}
	most := min(MaxServicePorts, MaxServiceFronts/addresses, max(1, MaxBackends/endpoints))
	return svc.Spec.Ports[:min(len(svc.Spec.Ports), most)]
}
