package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Affected returns the owners whose rows may change when an object changes, sorted. Both versions
// have the same type; old is nil for a new object, now for a deleted one. A change that no plan
// reads affects no owner.
func Affected(c *Cluster, old, now any) []Key {
	keys := keySet{}

	of := KindOf(now)
	if now == nil {
		of = KindOf(old)
	}

	for _, k := range Kinds() {
		if add := k.entry().changed[of]; add != nil {
			add(c, keys, old, now)
		}
	}

	return keys.sorted()
}

type keySet map[Key]struct{}

func (s keySet) add(keys ...Key) {
	for _, k := range keys {
		s[k] = struct{}{}
	}
}

func (s keySet) sorted() []Key { return slices.SortedFunc(maps.Keys(s), Key.Compare) }

// versions returns both versions of an object by their type; a missing version is nil.
func versions[T any](old, now any) (was, is *T) {
	was, _ = old.(*T)
	is, _ = now.(*T)

	return was, is
}

// affectsItself adds the key of the changed object.
func affectsItself(_ *Cluster, keys keySet, old, now any) {
	for _, v := range []any{old, now} {
		if o, ok := v.(metav1.Object); ok {
			keys.add(Key{KindOf(v), o.GetNamespace(), o.GetName()})
		}
	}
}

// nodeChanged adds:
//   - the node, also when the controller's own annotations change: the store may have been stale
//     when they were compared;
//   - the node, while it has the condition NetworkUnavailable;
//   - the nodes with the same system-id;
//   - the address sets of all hosts, and of the hosts in PodTunnels;
//   - the node's pods, if their switch or subnets are added or removed;
//   - the node's pods with host ports, if its addresses change;
//   - Services that depend on nodes.
//
// A node with a malformed annotation serves nothing, so an annotation that becomes malformed, or no
// longer is, affects as much as the addresses.
func nodeChanged(c *Cluster, keys keySet, old, now any) {
	was, is := versions[corev1.Node](old, now)
	name := eitherName(was, is)
	exists := was == nil || is == nil
	changed := func(names ...string) bool {
		return exists || annotated(was.Annotations, is.Annotations, names...)
	}

	subnets := changed(annotation.NodeSubnets)
	hosts := exists || !slices.Equal(annotation.HostAddresses(was), annotation.HostAddresses(is))

	gateway := changed(annotation.GatewayConfig, annotation.HostCIDRs, annotation.ChassisID,
		annotation.ChassisTakenBy, annotation.NodeJoin)
	addresses := gateway || hosts || changed(annotation.OfNodes()...) && corrected(was, is, c.Config)

	if changed(annotation.HostCIDRs) || hosts && len(c.Config.PodTunnels) > 0 {
		keys.add(ClusterKey())
	}

	if changed(annotation.ChassisID) {
		chassisAffects(c, keys, was, is)
	}

	settings := changed(annotation.NodeID, annotation.ManagementMACs, annotation.SNATPortRange,
		annotation.PodMTU, annotation.RoutablePods, annotation.GatewayRoutes, annotation.LeavesBy)
	if subnets || addresses || settings || !exists && networkUnavailable(is) {
		keys.add(NodeKey(name))
	}

	if subnets || addresses ||
		changed(annotation.RoutablePods, annotation.ManagementMACs, annotation.DrainGateway) {
		egressGatewayAffects(c, keys, was, is)
	}

	for _, n := range []*corev1.Node{was, is} {
		if n != nil && changed(annotation.GatewayConfig) {
			if k := uplinkConflict(n); c.Object(k) != nil {
				keys.add(k)
			}
		}
	}

	for _, p := range c.NodePods(name) {
		if subnets || addresses && services.HasHostPorts(p) {
			keys.add(PodKey(p.Namespace, p.Name))
		}
	}

	if !addresses && !subnets && was.Labels[corev1.LabelTopologyZone] == is.Labels[corev1.LabelTopologyZone] {
		return
	}

	for s := range Objects[corev1.Service](c, KindService) {
		if NeedsNodes(c, s) {
			keys.add(ServiceKey(s.Namespace, s.Name))
		}
	}
}

// corrected reports whether exactly one of the versions has a malformed annotation.
func corrected(was, is *corev1.Node, cfg Config) bool {
	_, before := parseNode(was, cfg)
	_, after := parseNode(is, cfg)

	return (before == nil) != (after == nil)
}

// chassisAffects adds the nodes that have the node's former or new system-id: only one may keep it.
func chassisAffects(c *Cluster, keys keySet, was, is *corev1.Node) {
	ids := map[string]bool{}

	for _, n := range []*corev1.Node{was, is} {
		if n != nil && n.Annotations[annotation.ChassisID] != "" {
			ids[n.Annotations[annotation.ChassisID]] = true
		}
	}

	for n := range Objects[corev1.Node](c, KindNode) {
		if ids[n.Annotations[annotation.ChassisID]] {
			keys.add(NodeKey(n.Name))
		}
	}
}

func eitherName(was, is *corev1.Node) string {
	if is != nil {
		return is.Name
	}

	return was.Name
}

// egressGatewayAffects adds the nodes without a gateway if the node is, or was, a possible egress
// gateway for their pods.
func egressGatewayAffects(c *Cluster, keys keySet, was, is *corev1.Node) {
	if (was == nil || !MayBeEgressGateway(was)) && (is == nil || !MayBeEgressGateway(is)) {
		return
	}

	for n := range Objects[corev1.Node](c, KindNode) {
		if UsesEgressGateways(n) {
			keys.add(NodeKey(n.Name))
		}
	}
}

func podChanged(c *Cluster, keys keySet, old, now any) {
	was, is := versions[corev1.Pod](old, now)
	if was != nil && is != nil && !podDiffers(was, is) {
		return
	}

	affectsItself(c, keys, old, now)

	for _, p := range []*corev1.Pod{was, is} {
		if p != nil {
			c.podConflicts(keys, p)
			c.addNamedPorts(keys, p)
		}
	}

	for _, p := range []*corev1.Pod{was, is} {
		if services.HasHostPorts(p) {
			c.account(keys, services.OwnerOfPod(p).Key)
		}
	}
}

func podDiffers(was, is *corev1.Pod) bool {
	return was.UID != is.UID || was.Spec.NodeName != is.Spec.NodeName || NeedsPort(was) != NeedsPort(is) ||
		annotated(was.Annotations, is.Annotations, annotation.PodNetworks, annotation.FirstPod,
			annotation.DefaultNetwork) ||
		!maps.Equal(was.Labels, is.Labels)
}

func serviceChanged(c *Cluster, keys keySet, old, now any) {
	affectsItself(c, keys, old, now)

	was, is := versions[corev1.Service](old, now)
	for _, s := range []*corev1.Service{was, is} {
		if s != nil {
			c.serviceConflicts(keys, s)
			c.account(keys, services.OwnerOfService(s).Key)
		}
	}
}

func sliceChanged(c *Cluster, keys keySet, old, now any) {
	was, is := versions[discoveryv1.EndpointSlice](old, now)
	c.apiServersAffect(keys, was, is)

	for _, s := range []*discoveryv1.EndpointSlice{was, is} {
		if s != nil && s.Labels[discoveryv1.LabelServiceName] != "" {
			keys.add(ServiceKey(s.Namespace, s.Labels[discoveryv1.LabelServiceName]))
			c.account(keys, services.Key{
				Kind:      services.KindService,
				Namespace: s.Namespace,
				Name:      s.Labels[discoveryv1.LabelServiceName],
			})
		}
	}
}

// annotated reports whether one of the annotations was added, removed or changed. The removal of an
// empty annotation is a change, because its writer waits for it.
func annotated(was, is map[string]string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		before, had := was[name]
		after, has := is[name]

		return had != has || before != after
	})
}
