package annotation

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TargetPort is the port that the slice's endpoints have for a service port:
// the API server's controller has resolved names, per slice. Agent and
// controller read it alike.
func TargetPort(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range slice.Ports {
		name, proto := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		if name == port.Name && proto == Protocol(port.Protocol) && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// Protocol is what a port's protocol means: TCP if it does not say one.
func Protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
