package plan

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// addServiceConflicts adds the owners that may claim a frontend of this version of a Service,
// because the frontend may move between them. It looks them up in ByFrontend. When they are
// planned, an arbiter decides which of them gets it (claim.go).
func (c *Cluster) addServiceConflicts(keys keySet, obj *corev1.Service) {
	svc := services.New(c.Config.services(), obj, nil)
	if svc == nil {
		return
	}

	// Most addresses have only one Service, and then none of its ports needs a lookup.
	shared := slices.DeleteFunc(slices.Clone(svc.External),
		func(a netip.Addr) bool { return !c.othersClaim(a, obj) })

	for _, p := range svc.Ports {
		for _, a := range shared {
			c.addClaimants(keys, frontendValue(p.Protocol, a.String(), p.Number), nil)
		}

		// An external address may be a node's, so node ports and host ports may claim it, too.
		if len(svc.External) > 0 {
			c.addClaimants(keys, frontendValue(p.Protocol, anyNode, p.Number), nil)
		}

		// A node port is claimed by others as a node port, a host port, or at an external address.
		if p.NodePort != 0 {
			c.addClaimants(keys, frontendValue(p.Protocol, anyNode, p.NodePort), nil)
			c.addClaimants(keys, frontendValue(p.Protocol, anyExternal, p.NodePort), nil)
		}
	}
}

// othersClaim reports whether a Service other than svc claims the external address.
func (c *Cluster) othersClaim(a netip.Addr, svc *corev1.Service) bool {
	return slices.ContainsFunc(index[corev1.Service](c, KindService, ByFrontend, a.String()),
		func(o *corev1.Service) bool { return o.Name != svc.Name || o.Namespace != svc.Namespace })
}

// addPodConflicts adds the owners that may claim a host port of this version of a pod: pods on the
// same node, and Services. It does not look up the port at anyExternal, because many Services may
// claim it at addresses that are not a node's. It looks up each address of the pod's node instead.
func (c *Cluster) addPodConflicts(keys keySet, pod *corev1.Pod) {
	if !services.HasHostPorts(pod) {
		return
	}

	var nodeAddresses []netip.Addr
	if n := c.serviceNodes().byName[pod.Spec.NodeName]; n != nil {
		nodeAddresses = n.addresses
	}

	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		c.addClaimants(keys, frontendValue(p.Protocol, anyNode, p.Number),
			func(o *corev1.Pod) bool { return o.Spec.NodeName == pod.Spec.NodeName })

		for _, a := range nodeAddresses {
			c.addClaimants(keys, frontendValue(p.Protocol, a.String(), p.Number), nil)
		}
	}
}

// addClaimants adds the owners with the value in ByFrontend. It adds only the pods that isCandidate
// accepts; nil accepts all.
func (c *Cluster) addClaimants(keys keySet, value string, isCandidate func(*corev1.Pod) bool) {
	for _, o := range index[corev1.Service](c, KindService, ByFrontend, value) {
		keys.add(ServiceKey(o.Namespace, o.Name))
	}

	for _, o := range index[corev1.Pod](c, KindPod, ByFrontend, value) {
		if isCandidate == nil || isCandidate(o) {
			keys.add(PodKey(o.Namespace, o.Name))
		}
	}
}
