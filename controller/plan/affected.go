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

// Affected returns the owners whose rows may change when an object changes, sorted. It must be
// called after the change is in the cluster's stores. Both versions have the same type; old is nil
// for a new object, now for a deleted one. A change that no plan reads affects no owner.
func Affected(c *Cluster, old, now any) []Key {
	keys := keySet{}

	kind := KindOf(now)
	if now == nil {
		kind = KindOf(old)
	}

	for _, k := range Kinds() {
		if addAffected := k.entry().changed[kind]; addAffected != nil {
			addAffected(c, keys, old, now)
		}
	}

	return keys.sorted()
}

// keySet collects the result of Affected.
type keySet map[Key]struct{}

func (s keySet) add(keys ...Key) {
	for _, k := range keys {
		s[k] = struct{}{}
	}
}

func (s keySet) sorted() []Key { return slices.SortedFunc(maps.Keys(s), Key.Compare) }

// versions returns both versions of an object by their type; a missing version is nil.
func versions[T any](old, now any) (before, after *T) {
	before, _ = old.(*T)
	after, _ = now.(*T)

	return before, after
}

// existing returns the versions of an object that are not nil.
func existing[T any](before, after *T) []*T {
	return slices.DeleteFunc([]*T{before, after}, func(v *T) bool { return v == nil })
}

// addItself adds the key of the changed object.
func addItself(_ *Cluster, keys keySet, old, now any) {
	for _, v := range []any{old, now} {
		if o, ok := v.(metav1.Object); ok {
			keys.add(Key{KindOf(v), o.GetNamespace(), o.GetName()})
		}
	}
}

// nodeChange has both versions of a Node, and the differences that affect several kinds of owners.
// If the Node is created or deleted, all differences are true.
type nodeChange struct {
	before, after       *corev1.Node // nil if the Node is created or deleted
	subnetsChanged      bool         // of its pods, and so its switch
	hostsChanged        bool         // the addresses of its host
	reachabilityChanged bool         // host addresses, gateway, chassis, or whether it serves anything
}

func newNodeChange(before, after *corev1.Node, cfg Config) nodeChange {
	ch := nodeChange{before: before, after: after}

	ch.subnetsChanged = ch.annotationsChanged(annotation.NodeSubnets)
	ch.hostsChanged = ch.createdOrDeleted() ||
		!slices.Equal(cfg.Hosts.HostAddresses(before), cfg.Hosts.HostAddresses(after))

	ch.reachabilityChanged = ch.hostsChanged || ch.validityChanged(cfg) ||
		ch.annotationsChanged(annotation.GatewayConfig, annotation.HostCIDRs, annotation.ChassisID,
			annotation.ChassisTakenBy, annotation.NodeJoin)

	return ch
}

func (ch nodeChange) createdOrDeleted() bool { return ch.before == nil || ch.after == nil }

// annotationsChanged reports whether one of the annotations differs.
func (ch nodeChange) annotationsChanged(names ...string) bool {
	return ch.createdOrDeleted() || annotationsDiffer(ch.before.Annotations, ch.after.Annotations, names...)
}

// validityChanged reports whether exactly one of the versions has a malformed annotation. A node
// with such an annotation serves nothing.
func (ch nodeChange) validityChanged(cfg Config) bool {
	if ch.createdOrDeleted() {
		return true
	}

	if !ch.annotationsChanged(annotation.OfNodes()...) {
		return false // without parsing, which is costly
	}

	_, errBefore := parseNode(ch.before, cfg)
	_, errAfter := parseNode(ch.after, cfg)

	return (errBefore == nil) != (errAfter == nil)
}

// zoneChanged reports whether the topology zone differs, to which hints refer.
func (ch nodeChange) zoneChanged() bool {
	return ch.createdOrDeleted() ||
		ch.before.Labels[corev1.LabelTopologyZone] != ch.after.Labels[corev1.LabelTopologyZone]
}

// nodeChanged adds, depending on what has changed in a Node:
//   - the node itself, and other nodes: see addNodes;
//   - the cluster's own rows, which have the address sets of hosts: see addHostSets;
//   - pods of the node, and a pod whose port has the name of one of the node's: see addNodePods;
//   - Services: see addNodeServices;
//   - policies and Services that a share lets in or out because the number of nodes has changed.
func nodeChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[corev1.Node](old, now)
	ch := newNodeChange(before, after, c.Config)

	addNodes(c, keys, ch)
	addHostSets(c, keys, ch)
	addNodePods(c, keys, ch)
	addNodeServices(c, keys, ch)

	if ch.createdOrDeleted() {
		c.budgets.addNodeCountChange(c, keys)
		c.addAccountedNodes(keys)
	}
}

// addNodes adds:
//   - the node itself, if its rows depend on the change. This includes annotations that only the
//     controller writes: when it last compared them with its rows, its store may have been stale;
//   - the node itself while it has the condition NetworkUnavailable, which the controller removes
//     after the node's rows are written;
//   - the nodes that have its former or new system-id, if that has changed;
//   - the nodes without a gateway, if this node may be an egress gateway for them.
func addNodes(c *Cluster, keys keySet, ch nodeChange) {
	settingsChanged := ch.annotationsChanged(annotation.NodeID, annotation.ManagementMACs,
		annotation.SNATPortRange, annotation.PodMTU, annotation.RoutablePods, annotation.GatewayRoutes,
		annotation.LeavesBy)
	if ch.subnetsChanged || ch.reachabilityChanged || settingsChanged ||
		(ch.after != nil && networkUnavailable(ch.after)) {
		keys.add(NodeKey(eitherName(ch.before, ch.after)))
	}

	if ch.annotationsChanged(annotation.ChassisID) {
		addChassisSharers(c, keys, ch.before, ch.after)
	}

	if ch.subnetsChanged || ch.reachabilityChanged ||
		ch.annotationsChanged(annotation.RoutablePods, annotation.ManagementMACs, annotation.DrainGateway) {
		addEgressUsers(c, keys, ch.before, ch.after)
	}
}

// addHostSets adds the key of the address sets of all hosts, and of the hosts in PodTunnels.
func addHostSets(c *Cluster, keys keySet, ch nodeChange) {
	isHostSetAffected := ch.annotationsChanged(annotation.HostCIDRs) || // or which of them are trusted
		!slices.Equal(ch.before.Status.Addresses, ch.after.Status.Addresses)
	if isHostSetAffected || (ch.hostsChanged && len(c.Config.PodTunnels) > 0) {
		keys.add(ClusterKey())
	}
}

// addNodePods adds:
//   - all pods of the node, if its subnets, and so its switch, are added, changed or removed;
//   - its pods with host ports, if reachabilityChanged;
//   - a pod of any node whose port would have the name of the node's external port, if that
//     changes.
func addNodePods(c *Cluster, keys keySet, ch nodeChange) {
	for _, p := range c.NodePods(eitherName(ch.before, ch.after)) {
		if ch.subnetsChanged || (ch.reachabilityChanged && services.HasHostPorts(p)) {
			keys.add(PodKey(p.Namespace, p.Name))
		}
	}

	if !ch.annotationsChanged(annotation.GatewayConfig) {
		return
	}

	for _, n := range existing(ch.before, ch.after) {
		if k := uplinkConflict(n); c.Object(k) != nil {
			keys.add(k)
		}
	}
}

// addNodeServices adds the Services whose rows depend on nodes, if these rows read what has
// changed.
func addNodeServices(c *Cluster, keys keySet, ch nodeChange) {
	if !ch.reachabilityChanged && !ch.subnetsChanged && !ch.zoneChanged() {
		return
	}

	for s := range Objects[corev1.Service](c, KindService) {
		if NeedsNodes(c, s) {
			keys.add(ServiceKey(s.Namespace, s.Name))
		}
	}
}

// addChassisSharers adds the nodes that have the node's former or new system-id: only one of them
// may keep it.
func addChassisSharers(c *Cluster, keys keySet, before, after *corev1.Node) {
	ids := map[string]bool{}

	for _, n := range existing(before, after) {
		if id := n.Annotations[annotation.ChassisID]; id != "" {
			ids[id] = true
		}
	}

	for n := range Objects[corev1.Node](c, KindNode) {
		if ids[n.Annotations[annotation.ChassisID]] {
			keys.add(NodeKey(n.Name))
		}
	}
}

// eitherName returns the name of an object of which at least one version is not nil.
func eitherName(before, after *corev1.Node) string {
	if after != nil {
		return after.Name
	}

	return before.Name
}

// addEgressUsers adds the nodes without a gateway if the node is, or was, a possible egress gateway
// for their pods.
func addEgressUsers(c *Cluster, keys keySet, before, after *corev1.Node) {
	if !slices.ContainsFunc(existing(before, after), MayBeEgressGateway) {
		return
	}

	for n := range Objects[corev1.Node](c, KindNode) {
		if UsesEgressGateways(n) {
			keys.add(NodeKey(n.Name))
		}
	}
}

// podChanged adds, if the rows of any owner depend on the change:
//   - the pod itself;
//   - the policies that it opens or closes (budgets);
//   - the owners that claim its host ports, and those that a budget lets in or out because of
//     these;
//   - the policies that name its ports.
func podChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[corev1.Pod](old, now)
	if before != nil && after != nil && !podDiffers(before, after) {
		return
	}

	addItself(c, keys, old, now)

	if after != nil {
		c.budgets.addFirstPod(c, keys, after)
	}

	if before == nil || after == nil {
		c.budgets.addPodCountChange(c, keys, existing(before, after)[0].Namespace)
	}

	for _, p := range existing(before, after) {
		c.addPodConflicts(keys, p)
		c.addNamedPorts(keys, p)

		if services.HasHostPorts(p) {
			c.updateAccounts(keys, services.OwnerOfPod(p).Key)
		}
	}
}

// podDiffers reports whether two versions of a pod differ in what rows depend on.
func podDiffers(before, after *corev1.Pod) bool {
	return before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
		NeedsPort(before) != NeedsPort(after) ||
		annotationsDiffer(before.Annotations, after.Annotations, annotation.PodNetworks, annotation.FirstPod,
			annotation.DefaultNetwork) ||
		!maps.Equal(before.Labels, after.Labels)
}

// serviceChanged adds the Service, the owners that claim its frontends, and the owners that a
// budget lets in or out because of it.
func serviceChanged(c *Cluster, keys keySet, old, now any) {
	addItself(c, keys, old, now)

	before, after := versions[corev1.Service](old, now)
	for _, s := range existing(before, after) {
		c.addServiceConflicts(keys, s)
		c.updateAccounts(keys, services.OwnerOfService(s).Key)
	}
}

// sliceChanged adds the slice's Service, and the owners that a budget lets in or out because of it.
// If the slice lists API servers, it adds the owners of frontends at their addresses.
func sliceChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[discoveryv1.EndpointSlice](old, now)
	c.addAPIServerClaimants(keys, before, after)

	for _, s := range existing(before, after) {
		name := s.Labels[discoveryv1.LabelServiceName]
		if name == "" {
			continue
		}

		keys.add(ServiceKey(s.Namespace, name))
		c.updateAccounts(keys, services.Key{Kind: services.KindService, Namespace: s.Namespace, Name: name})
	}
}

// annotationsDiffer reports whether one of the annotations was added, removed or changed. An empty
// annotation differs from none: when the controller removes an annotation, it plans the object
// again only after this change.
func annotationsDiffer(before, after map[string]string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		oldValue, had := before[name]
		newValue, has := after[name]

		return had != has || oldValue != newValue
	})
}
