package plan

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Rivals returns the owners, beside the object itself, that ask for a front that this
// version of a service or pod asks for too, sorted: what they get may change with it.
func Rivals(c *Cluster, obj any) []Key {
	found := map[Key]struct{}{}
	switch obj := obj.(type) {
	case *corev1.Service:
		if model := services.New(c.Config.services(), obj, nil); model != nil {
			c.serviceRivals(model, found)
			delete(found, ServiceKey(obj.Namespace, obj.Name))
		}
	case *corev1.Pod:
		if obj != nil && HasHostPorts(obj) {
			c.podRivals(obj, found)
			delete(found, PodKey(obj.Namespace, obj.Name))
		}
	}
	return slices.SortedFunc(maps.Keys(found), Key.Compare)
}

func (c *Cluster) serviceRivals(svc *services.Service, found map[Key]struct{}) {
	for _, p := range svc.Ports {
		for _, a := range svc.External {
			c.askFor(frontValue(p.Protocol, a.String(), p.Number), found, nil)
		}
		if len(svc.External) > 0 {
			c.askFor(frontValue(p.Protocol, anyNode, p.Number), found, nil)
		}
		if p.NodePort != 0 {
			c.askFor(frontValue(p.Protocol, anyNode, p.NodePort), found, nil)
			c.askFor(frontValue(p.Protocol, anyExternal, p.NodePort), found, nil)
		}
	}
}

// podRivals: many services may have the port on addresses that are no node's.
func (c *Cluster) podRivals(pod *corev1.Pod, found map[Key]struct{}) {
	var own []netip.Addr
	if n := c.servers().byName[pod.Spec.NodeName]; n != nil {
		own = n.addresses
	}
	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		c.askFor(frontValue(p.Protocol, anyNode, p.Number), found, func(o *corev1.Pod) bool { return o.Spec.NodeName == pod.Spec.NodeName })
		for _, a := range own {
			c.askFor(frontValue(p.Protocol, a.String(), p.Number), found, nil)
		}
	}
}

// askFor adds the owners under a value of ByFront; pods only if keep says so,
// all if it is nil.
func (c *Cluster) askFor(value string, found map[Key]struct{}, keep func(*corev1.Pod) bool) {
	for _, o := range index[corev1.Service](c.Services, ByFront, value) {
		found[ServiceKey(o.Namespace, o.Name)] = struct{}{}
	}
	for _, o := range index[corev1.Pod](c.Pods, ByFront, value) {
		if keep == nil || keep(o) {
			found[PodKey(o.Namespace, o.Name)] = struct{}{}
		}
	}
}
