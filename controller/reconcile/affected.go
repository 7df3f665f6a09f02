package reconcile

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

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
			rivals(keys, c, was, is)
			insert(keys, plan.PodAffects(c, was, is))
		}
	case *corev1.Service:
		keys[plan.ServiceKey(obj.Namespace, obj.Name)] = struct{}{}
		rivals(keys, c, old, now)
	case *networkingv1.NetworkPolicy:
		was, _ := old.(*networkingv1.NetworkPolicy)
		is, _ := now.(*networkingv1.NetworkPolicy)
		if was == nil || is == nil || !reflect.DeepEqual(was.Spec, is.Spec) {
			insert(keys, plan.PolicyAffects(c, was, is))
		}
	case *networkingv1.ServiceCIDR:
		keys[plan.ServiceCIDRKey(obj.Name)] = struct{}{}
	case *corev1.Namespace:
		was, _ := old.(*corev1.Namespace)
		is, _ := now.(*corev1.Namespace)
		insert(keys, plan.NamespaceAffects(c, was, is))
	case *discoveryv1.EndpointSlice:
		for _, v := range []any{old, now} {
			if s, ok := v.(*discoveryv1.EndpointSlice); ok && s != nil && s.Labels[discoveryv1.LabelServiceName] != "" {
				keys[plan.ServiceKey(s.Namespace, s.Labels[discoveryv1.LabelServiceName])] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), plan.Key.Compare)
}

// rivals: who wants a front end that the object had or has.
func rivals(keys map[plan.Key]struct{}, c *plan.Cluster, versions ...any) {
	for _, v := range versions {
		for _, k := range plan.Rivals(c, v) {
			keys[k] = struct{}{}
		}
	}
}

func insert(keys map[plan.Key]struct{}, more []plan.Key) {
	for _, k := range more {
		keys[k] = struct{}{}
	}
}

func present(old, now any) any {
	if now != nil {
		return now
	}
	return old
}

// nodeAffects: the node itself, also if what this controller has told on it changes (the
// store may have been behind when it was compared), the set of all hosts' addresses, its pods if their switch or subnets come or
// go, its pods with host ports if its addresses do, and services that depend on
// nodes.
func nodeAffects(keys map[plan.Key]struct{}, c *plan.Cluster, name string, was, is *corev1.Node) {
	exists := was == nil || is == nil
	changed := func(names ...string) bool {
		return exists || annotated(was.Annotations, is.Annotations, names...)
	}
	subnets := changed(annotation.NodeSubnets)
	addresses := changed(annotation.GatewayConfig, annotation.HostCIDRs, annotation.ChassisID, annotation.NodeJoin) ||
		!slices.Equal(annotation.HostAddresses(was), annotation.HostAddresses(is))
	if changed(annotation.HostCIDRs) {
		keys[plan.ClusterKey()] = struct{}{}
	}
	if subnets || addresses || changed(annotation.NodeID, annotation.ManagementMACs, annotation.SNATPortRange, annotation.PodMTU, annotation.RoutablePods, annotation.LeavesBy) {
		keys[plan.NodeKey(name)] = struct{}{}
	}
	if subnets || addresses || changed(annotation.RoutablePods, annotation.ManagementMACs, annotation.DrainGateway) {
		exitAffects(keys, c, was, is)
	}
	for _, n := range []*corev1.Node{was, is} {
		if n != nil && changed(annotation.GatewayConfig) {
			if k := plan.UplinkRival(n); c.Pod(k.Namespace, k.Name) != nil {
				keys[k] = struct{}{}
			}
		}
	}
	for _, p := range c.NodePods(name) {
		if subnets || addresses && plan.HasHostPorts(p) {
			keys[plan.PodKey(p.Namespace, p.Name)] = struct{}{}
		}
	}
	if !addresses && !subnets && zone(was) == zone(is) {
		return
	}
	for _, obj := range c.Services.List() {
		if s, ok := obj.(*corev1.Service); ok && plan.NeedsNodes(c, s) {
			keys[plan.ServiceKey(s.Namespace, s.Name)] = struct{}{}
		}
	}
}

// exitAffects: the nodes without a gateway, if the node is or was one by which
// their pods leave.
func exitAffects(keys map[plan.Key]struct{}, c *plan.Cluster, was, is *corev1.Node) {
	if (was == nil || !plan.IsExit(was)) && (is == nil || !plan.IsExit(is)) {
		return
	}
	for _, obj := range c.Nodes.List() {
		if n, ok := obj.(*corev1.Node); ok && plan.LeavesByOthers(n) {
			keys[plan.NodeKey(n.Name)] = struct{}{}
		}
	}
}

func zone(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

func podChanged(was, is *corev1.Pod) bool {
	return was.UID != is.UID || was.Spec.NodeName != is.Spec.NodeName || plan.NeedsPort(was) != plan.NeedsPort(is) ||
		annotated(was.Annotations, is.Annotations, annotation.PodNetworks, annotation.FirstPod, annotation.DefaultNetwork) ||
		!maps.Equal(was.Labels, is.Labels)
}

// annotated says whether one of the annotations came, went or changed. An empty one that
// goes is a change: who has asked for that waits for it.
func annotated(was, is map[string]string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		before, had := was[name]
		after, has := is[name]
		return had != has || before != after
	})
}
