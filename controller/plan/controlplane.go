package plan

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// ControlPlaneAffects returns the owners whose rows may change after a change of Servers, sorted.
func (c *Cluster) ControlPlaneAffects(was, now services.ControlPlane) []Key {
	keys := keySet{}
	c.addControlPlaneClaimants(keys, was, now)

	return keys.sorted()
}

// controlPlane returns the servers at whose ports no frontend is served.
func (c *Cluster) controlPlane() services.ControlPlane {
	slices := index[discoveryv1.EndpointSlice](c, KindEndpointSlice, ByService,
		corev1.NamespaceDefault+"/kubernetes")

	found := services.APIServers(slices, c.Config.ServiceCIDRs)
	if c.Servers == nil {
		return found
	}

	return c.Servers().With(found)
}

// addAPIServerClaimants adds the owners of frontends at API servers that a slice of
// default/kubernetes adds or removes.
func (c *Cluster) addAPIServerClaimants(keys keySet, was, is *discoveryv1.EndpointSlice) {
	read := func(s *discoveryv1.EndpointSlice) services.ControlPlane {
		if s == nil || !services.IsAPIServerService(s.Namespace, s.Labels[discoveryv1.LabelServiceName]) {
			return services.ControlPlane{}
		}

		return services.APIServers([]*discoveryv1.EndpointSlice{s}, c.Config.ServiceCIDRs)
	}

	c.addControlPlaneClaimants(keys, read(was), read(is))
}

// addControlPlaneClaimants adds the owners that request frontends at servers that differ.
func (c *Cluster) addControlPlaneClaimants(keys keySet, was, is services.ControlPlane) {
	for _, at := range append(was.Without(is), is.Without(was)...) {
		address := at.Addr().String()
		c.addClaimants(keys, frontValue(corev1.ProtocolTCP, address, at.Port()), nil)
		c.addClaimants(keys, frontValue(corev1.ProtocolTCP, anyNode, at.Port()), nil)

		for _, kept := range services.KeptPorts() {
			c.addClaimants(keys, frontValue(kept.Protocol, address, kept.Number), nil)
		}
	}
}
