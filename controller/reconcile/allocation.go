package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// allocate allocates the id, subnets or addresses that the key's object needs, and returns the
// patch that writes them into the annotations of the object. It returns nil if the annotations are
// right already, or if nothing is needed. The allocator (package ipam) decides which values an
// object keeps or gets.
func (w *worker) allocate(k plan.Key) (*patch, error) {
	switch k.Kind {
	case plan.KindNode:
		if n := w.cluster.Node(k.Name); n != nil {
			return w.allocateNode(k, n)
		}
	case plan.KindPod:
		p := w.cluster.Pod(k.Namespace, k.Name)
		if !plan.NeedsPort(p) {
			return nil, nil
		}

		if n := w.cluster.Node(p.Spec.NodeName); n != nil {
			return w.allocatePod(k, n, p)
		}
	}

	return nil, nil
}

// allocateNode allocates for a Node. It returns the patch that writes the allocation into the
// Node's annotations, with the holder of the Node's system-id if that is another Node. It returns
// nil if the annotations are right.
func (w *worker) allocateNode(k plan.Key, n *corev1.Node) (*patch, error) {
	node, conflict, err := w.allocator.Node(n, w.cluster.NodePods)
	if conflict != nil {
		w.report(k, reasonReallocated, conflict)
	}

	if err != nil || node.ID == 0 { // no id: the node waits for its agent
		return nil, err
	}

	want := map[string]any{}

	holder, err := w.chassisHolder(n)
	if err != nil {
		return nil, err
	}

	switch current := n.Annotations[annotation.ChassisTakenBy]; { // "" if the Node has its system-id alone
	case holder != "" && current != holder:
		want[annotation.ChassisTakenBy] = holder
		w.report(k, reasonChassisTaken, fmt.Errorf("node %s has the system-id %q, which is that of node "+
			"%s: node %[1]s gets no traffic of pods until its Open vSwitch has another one",
			n.Name, n.Annotations[annotation.ChassisID], holder))
	case holder == "" && current != "":
		want[annotation.ChassisTakenBy] = nil
	}

	if id, err := annotation.ParseNodeID(n.Annotations); err != nil || id != node.ID {
		want[annotation.NodeID] = strconv.Itoa(node.ID)
	}

	subnets, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil || !slices.Equal(subnets, node.Subnets) {
		want[annotation.NodeSubnets] = annotation.FormatNodeSubnets(node.Subnets)

		w.warnIfTooLarge(k) // only once for each node: when it gets its subnets
	}

	if join, err := annotation.ParseJoin(n.Annotations); err != nil || join != node.Join {
		want[annotation.NodeJoin] = annotation.FormatJoin(node.Join)
	}

	return newAnnotationPatch(&n.ObjectMeta, want), nil
}

// warnIfTooLarge reports a node with which the cluster is larger than supported. The node is
// served all the same.
func (w *worker) warnIfTooLarge(k plan.Key) {
	if n := w.allocator.Usage(0).Nodes; n > plan.SupportedNodes {
		w.log.Warn("cluster is larger than supported",
			"nodes", n, "supported", plan.SupportedNodes, "node", k.Name)
		w.report(k, reasonBeyondSize, fmt.Errorf("the cluster has %d nodes with a pod subnet, and %d are "+
			"supported", n, plan.SupportedNodes))
	}
}

// allocatePod allocates for a pod. It returns the patch that writes the allocation into the pod's
// annotations, or nil if they are right.
//
// If a pod without allocation cannot have the addresses in its annotations, the patch removes the
// annotations. Otherwise the next leader would take these addresses for the pod's.
func (w *worker) allocatePod(k plan.Key, n *corev1.Node, p *corev1.Pod) (*patch, error) {
	network, conflict, err := w.allocator.Pod(n, p, w.cluster.NodePods)
	if conflict != nil {
		w.report(k, reasonReallocated, conflict)
	}

	switch {
	case errors.Is(err, ipam.ErrNodeBehind):
		return nil, err
	case err != nil && len(network.Addresses) == 0 && hasAddressAnnotation(p):
		none := map[string]any{annotation.PodNetworks: nil, annotation.FirstPod: nil}
		return newAnnotationPatch(&p.ObjectMeta, none), nil
	case err != nil:
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	case len(network.Addresses) == 0:
		return nil, nil
	}

	return w.podAnnotationsPatch(p, network), nil
}

// hasAddressAnnotation reports whether the pod has an annotation for addresses, which may be
// empty.
func hasAddressAnnotation(p *corev1.Pod) bool {
	_, hasNetworks := p.Annotations[annotation.PodNetworks]
	_, hasFirst := p.Annotations[annotation.FirstPod]

	return hasNetworks || hasFirst
}

// podAnnotationsPatch returns the patch that makes the pod's annotations equal to its allocation,
// or nil if they are. If the first generation's annotation differs and this controller does not
// write it, the patch removes it.
func (w *worker) podAnnotationsPatch(p *corev1.Pod, network annotation.Pod) *patch {
	want := map[string]any{}
	if text := annotation.FormatPod(network); p.Annotations[annotation.PodNetworks] != text {
		want[annotation.PodNetworks] = text
	}

	text := annotation.FormatFirstPod(network)
	switch current, exists := p.Annotations[annotation.FirstPod]; {
	case current == text:
		// It is right.
	case w.firstAnnotation:
		want[annotation.FirstPod] = text
	case exists:
		want[annotation.FirstPod] = nil
	}

	return newAnnotationPatch(&p.ObjectMeta, want)
}

// hasAllocatedAddresses reports whether the ports in the rows have the addresses that are
// allocated to their pods. Ports are planned from annotations, and an annotation may have changed
// since allocate compared it. That change enqueues the key again.
func (w *worker) hasAllocatedAddresses(rows []plan.Row) bool {
	for _, r := range rows {
		port, ok := r.(plan.LogicalSwitchPort)
		if !ok || port.Incarnation == "" { // not the port of a pod
			continue
		}

		namespace, name, _ := strings.Cut(port.Name, "_")

		network := w.allocator.Network(ipam.Pod{Name: namespace + "/" + name, UID: port.Incarnation})

		want := []string{plan.PortAddresses(network)}
		if len(network.Addresses) == 0 || !slices.Equal(port.Addresses, want) {
			return false
		}
	}

	return true
}

// release frees what the key's object no longer needs. The database must hold exactly the key's
// rows. It reports whether it freed a node's id and subnets.
func (w *worker) release(k plan.Key, rows []plan.Row) (freedNode bool) {
	switch k.Kind {
	case plan.KindNode:
		if len(rows) == 0 && w.cluster.Node(k.Name) == nil {
			return w.allocator.ReleaseNode(k.Name)
		}
	case plan.KindPod:
		// The pod may have been deleted or replaced since its rows were planned.
		var keep []string

		for _, r := range rows {
			if port, ok := r.(plan.LogicalSwitchPort); ok {
				keep = append(keep, port.Incarnation)
			}
		}

		p := w.cluster.Pod(k.Namespace, k.Name)
		if plan.NeedsPort(p) && w.cluster.Node(p.Spec.NodeName) != nil {
			keep = append(keep, string(p.UID))
		}

		w.allocator.ReleasePods(k.Namespace+"/"+k.Name, keep...)
	}

	return false
}

// allocatedKeys returns the keys of all objects with an allocation, in any order.
func (w *worker) allocatedKeys() []plan.Key {
	var out []plan.Key
	for _, name := range w.allocator.Nodes() {
		out = append(out, plan.NodeKey(name))
	}

	for pod := range w.allocator.Pods() {
		namespace, name, _ := strings.Cut(pod.Name, "/")
		out = append(out, plan.PodKey(namespace, name))
	}

	return out
}
