package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// ControlPlaneAffects returns the owners whose rows may change after the result of Servers has
// changed, sorted: those that claim frontends at the API servers and OVN databases.
func (c *Cluster) ControlPlaneAffects(before, after services.ControlPlane) []Key {
	keys := keySet{}
	c.addControlPlaneClaimants(keys, before, after)

	return keys.sorted()
}

// controlPlane returns the API servers and OVN databases: those of the settings, and the API
// servers that default/kubernetes lists. No frontend is served at their ports.
func (c *Cluster) controlPlane() services.ControlPlane {
	endpointSlices := index[discoveryv1.EndpointSlice](c, KindEndpointSlice, ByService,
		corev1.NamespaceDefault+"/kubernetes")

	apiServers := services.APIServers(endpointSlices, c.Config.ServiceCIDRs)
	if c.Servers == nil {
		return apiServers
	}

	return c.Servers().With(apiServers)
}

// addAPIServerClaimants adds the owners of frontends at API servers that a slice of
// default/kubernetes adds or removes.
func (c *Cluster) addAPIServerClaimants(keys keySet, before, after *discoveryv1.EndpointSlice) {
	apiServers := func(s *discoveryv1.EndpointSlice) services.ControlPlane {
		if s == nil || !services.IsAPIServerService(s.Namespace, s.Labels[discoveryv1.LabelServiceName]) {
			return services.ControlPlane{}
		}

		return services.APIServers([]*discoveryv1.EndpointSlice{s}, c.Config.ServiceCIDRs)
	}

	c.addControlPlaneClaimants(keys, apiServers(before), apiServers(after))
}

// addControlPlaneClaimants adds the owners that claim frontends at servers that only one of the
// versions has.
func (c *Cluster) addControlPlaneClaimants(keys keySet, before, after services.ControlPlane) {
	for _, server := range slices.Concat(before.Without(after), after.Without(before)) {
		address := server.Addr().String()
		c.addClaimants(keys, frontendValue(corev1.ProtocolTCP, address, server.Port()), nil)
		c.addClaimants(keys, frontendValue(corev1.ProtocolTCP, anyNode, server.Port()), nil)

		for _, reserved := range services.KeptPorts() {
			c.addClaimants(keys, frontendValue(reserved.Protocol, address, reserved.Number), nil)
		}
	}
}
