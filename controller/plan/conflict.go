package plan

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// addServiceConflicts adds the owners that request a frontend of this version of a Service: the
// frontend may move between them.
func (c *Cluster) addServiceConflicts(keys keySet, obj *corev1.Service) {
	svc := services.New(c.Config.services(), obj, nil)
	if svc == nil {
		return
	}

	// Most addresses have only one Service, and then none of its ports needs a lookup.
	shared := slices.DeleteFunc(slices.Clone(svc.External),
		func(a netip.Addr) bool { return !c.othersRequest(a, obj) })

	for _, p := range svc.Ports {
		for _, a := range shared {
			c.addClaimants(keys, frontValue(p.Protocol, a.String(), p.Number), nil)
		}

		if len(svc.External) > 0 {
			c.addClaimants(keys, frontValue(p.Protocol, anyNode, p.Number), nil)
		}

		if p.NodePort != 0 {
			c.addClaimants(keys, frontValue(p.Protocol, anyNode, p.NodePort), nil)
			c.addClaimants(keys, frontValue(p.Protocol, anyExternal, p.NodePort), nil)
		}
	}
}

// othersRequest reports whether another Service requests the external address.
func (c *Cluster) othersRequest(a netip.Addr, than *corev1.Service) bool {
	return slices.ContainsFunc(index[corev1.Service](c, KindService, ByFront, a.String()),
		func(o *corev1.Service) bool { return o.Name != than.Name || o.Namespace != than.Namespace })
}

// addPodConflicts adds the owners that request a host port of this version of a pod. It looks up
// the addresses of the pod's node one by one, because many Services may request the port on
// addresses that belong to no node.
func (c *Cluster) addPodConflicts(keys keySet, pod *corev1.Pod) {
	if !services.HasHostPorts(pod) {
		return
	}

	var own []netip.Addr
	if n := c.servers().byName[pod.Spec.NodeName]; n != nil {
		own = n.addresses
	}

	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		c.addClaimants(keys, frontValue(p.Protocol, anyNode, p.Number),
			func(o *corev1.Pod) bool { return o.Spec.NodeName == pod.Spec.NodeName })

		for _, a := range own {
			c.addClaimants(keys, frontValue(p.Protocol, a.String(), p.Number), nil)
		}
	}
}

// addClaimants adds the owners under a value of ByFront. It adds a pod only if keep accepts it; a
// nil keep accepts all pods.
func (c *Cluster) addClaimants(keys keySet, value string, keep func(*corev1.Pod) bool) {
	for _, o := range index[corev1.Service](c, KindService, ByFront, value) {
		keys.add(ServiceKey(o.Namespace, o.Name))
	}

	for _, o := range index[corev1.Pod](c, KindPod, ByFront, value) {
		if keep == nil || keep(o) {
			keys.add(PodKey(o.Namespace, o.Name))
		}
	}
}
