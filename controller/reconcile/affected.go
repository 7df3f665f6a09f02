package reconcile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Affected returns the keys whose rows a change of an object may change, sorted. Both
// versions are of the same type; old is nil for a new object, now for one that
// is gone. A change that no plan looks at affects nothing.
func Affected(c *plan.Cluster, old, now any) []plan.Key {
	keys := map[plan.Key]struct{}{}
	switch obj := present(old, now).(type) {
	case *corev1.Node:
		was, _ := old.(*corev1.Node)
		is, _ := now.(*corev1.Node)
		nodeAffects(keys, c, obj.Name, was, is)
	case *corev1.Pod:
		was, _ := old.(*corev1.Pod)
		is, _ := now.(*corev1.Pod)
		if was == nil || is == nil || podChanged(was, is) {
			keys[plan.PodKey(obj.Namespace, obj.Name)] = struct{}{}
		}
	case *corev1.Service:
		keys[plan.ServiceKey(obj.Namespace, obj.Name)] = struct{}{}
	case *discoveryv1.EndpointSlice:
		for _, v := range []any{old, now} {
			if s, ok := v.(*discoveryv1.EndpointSlice); ok && s != nil && s.Labels[discoveryv1.LabelServiceName] != "" {
				keys[plan.ServiceKey(s.Namespace, s.Labels[discoveryv1.LabelServiceName])] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), plan.Key.Compare)
}

func present(old, now any) any {
	if now != nil {
		return now
	}
	return old
}

// nodeAffects: the node itself, its pods if their switch or subnets come or
// go, and services with node ports if its addresses do.
func nodeAffects(keys map[plan.Key]struct{}, c *plan.Cluster, name string, was, is *corev1.Node) {
	changed := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return value(was, n) != value(is, n) })
	}
	exists := was == nil || is == nil
	subnets := exists || changed(annotation.NodeSubnets)
	addresses := exists || changed(annotation.GatewayConfig, annotation.HostCIDRs, annotation.ChassisID, annotation.NodeJoin)
	if subnets || addresses || changed(annotation.NodeID, annotation.ManagementMACs, annotation.SNATPortRange, annotation.PodMTU) {
		keys[plan.NodeKey(name)] = struct{}{}
	}
	if subnets {
		for _, p := range c.NodePods(name) {
			keys[plan.PodKey(p.Namespace, p.Name)] = struct{}{}
		}
	}
	if !addresses {
		return
	}
	for _, obj := range c.Services.List() {
		if s, ok := obj.(*corev1.Service); ok && plan.HasNodePorts(s) {
			keys[plan.ServiceKey(s.Namespace, s.Name)] = struct{}{}
		}
	}
}

func value(n *corev1.Node, name string) string {
	if n == nil {
		return ""
	}
	return n.Annotations[name]
}

func podChanged(was, is *corev1.Pod) bool {
	return was.UID != is.UID || was.Spec.NodeName != is.Spec.NodeName || plan.NeedsPort(was) != plan.NeedsPort(is) ||
		was.Annotations[annotation.PodNetworks] != is.Annotations[annotation.PodNetworks]
}
