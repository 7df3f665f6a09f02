package plan

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// serviceConflicts adds the owners that ask for a front that this version of a Service asks for,
// too: what they get may change with it.
func (c *Cluster) serviceConflicts(keys keySet, obj *corev1.Service) {
	svc := services.New(c.Config.services(), obj, nil)
	if svc == nil {
		return
	}
	for _, p := range svc.Ports {
		for _, a := range svc.External {
			c.addAsking(keys, frontValue(p.Protocol, a.String(), p.Number), nil)
		}
		if len(svc.External) > 0 {
			c.addAsking(keys, frontValue(p.Protocol, anyNode, p.Number), nil)
		}
		if p.NodePort != 0 {
			c.addAsking(keys, frontValue(p.Protocol, anyNode, p.NodePort), nil)
			c.addAsking(keys, frontValue(p.Protocol, anyExternal, p.NodePort), nil)
		}
	}
}

// podConflicts does the same for a pod's host ports. It asks for the addresses of the pod's node
// one by one, because many Services may have the port on addresses that are not a node's.
func (c *Cluster) podConflicts(keys keySet, pod *corev1.Pod) {
	if !services.HasHostPorts(pod) {
		return
	}
	var own []netip.Addr
	if n := c.servers().byName[pod.Spec.NodeName]; n != nil {
		own = n.addresses
	}
	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		c.addAsking(keys, frontValue(p.Protocol, anyNode, p.Number), func(o *corev1.Pod) bool { return o.Spec.NodeName == pod.Spec.NodeName })
		for _, a := range own {
			c.addAsking(keys, frontValue(p.Protocol, a.String(), p.Number), nil)
		}
	}
}

// addAsking adds the owners under a value of ByFront. Of pods it adds those that keep accepts; a
// nil keep accepts all.
func (c *Cluster) addAsking(keys keySet, value string, keep func(*corev1.Pod) bool) {
	for _, o := range index[corev1.Service](c, KindService, ByFront, value) {
		keys.add(ServiceKey(o.Namespace, o.Name))
	}
	for _, o := range index[corev1.Pod](c, KindPod, ByFront, value) {
		if keep == nil || keep(o) {
			keys.add(PodKey(o.Namespace, o.Name))
		}
	}
}
