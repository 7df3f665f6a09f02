package plan

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// Rivals returns the owners, beside the object itself, that ask for a front that this
// version of a service or pod asks for too, sorted: what they get may change with it.
func Rivals(c *Cluster, obj any) []Key {
	found := map[Key]struct{}{}
	switch obj := obj.(type) {
	case *corev1.Service:
		if obj != nil && served(obj) {
			c.serviceRivals(obj, found)
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

func (c *Cluster) serviceRivals(svc *corev1.Service, found map[Key]struct{}) {
	external := c.Config.externalAddresses(svc, nil)
	for _, p := range annotation.ServicePorts(svc, nil) {
		proto := annotation.Protocol(p.Protocol)
		for _, a := range external {
			c.askFor(frontValue(proto, a.String(), p.Port), found, nil)
		}
		if len(external) > 0 {
			c.askFor(frontValue(proto, anyNode, p.Port), found, nil)
		}
		if p.NodePort != 0 {
			c.askFor(frontValue(proto, anyNode, p.NodePort), found, nil)
			c.askFor(frontValue(proto, anyExternal, p.NodePort), found, nil)
		}
	}
}

// podRivals: many services may have the port on addresses that are no node's.
func (c *Cluster) podRivals(pod *corev1.Pod, found map[Key]struct{}) {
	var own []netip.Addr
	if n := c.servers().byName[pod.Spec.NodeName]; n != nil {
		own = n.addresses
	}
	for _, p := range hostPorts(pod) {
		proto := annotation.Protocol(p.Protocol)
		c.askFor(frontValue(proto, anyNode, p.HostPort), found, func(o *corev1.Pod) bool { return o.Spec.NodeName == pod.Spec.NodeName })
		for _, a := range own {
			c.askFor(frontValue(proto, a.String(), p.HostPort), found, nil)
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
