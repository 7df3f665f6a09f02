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

// allocate returns the patch that writes the key's allocation into the annotations of its object.
// It returns nil if they are right already or nothing is needed.
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

// allocateNode returns the patch of the Node's annotations from the allocator and about its
// system-id, nil if they are right.
func (w *worker) allocateNode(k plan.Key, n *corev1.Node) (*patch, error) {
	node, conflict, err := w.allocator.Node(n, w.cluster.NodePods)
	if conflict != nil {
		w.report(k, reasonReallocated, conflict)
	}

	if err != nil || node.ID == 0 {
		return nil, err
	}

	want := map[string]any{}

	holder, err := w.chassisHolder(n)
	if err != nil {
		return nil, err
	}

	switch current := n.Annotations[annotation.ChassisTakenBy]; {
	case holder != "" && current != holder:
		want[annotation.ChassisTakenBy] = holder
		w.report(k, reasonChassisTaken, fmt.Errorf("node %s has the system-id %q, which is that of node "+
			"%s: node %[1]s gets no traffic of pods until its Open vSwitch has another one",
			n.Name, n.Annotations[annotation.ChassisID], holder))
	case holder == "" && current != "":
		want[annotation.ChassisTakenBy] = nil
	}

	if have, err := annotation.ParseNodeID(n.Annotations); err != nil || have != node.ID {
		want[annotation.NodeID] = strconv.Itoa(node.ID)
	}

	subnets, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil || !slices.Equal(subnets, node.Subnets) {
		want[annotation.NodeSubnets] = annotation.FormatNodeSubnets(node.Subnets)

		w.warnOfSize(k)
	}

	if have, err := annotation.ParseJoin(n.Annotations); err != nil || have != node.Join {
		want[annotation.NodeJoin] = annotation.FormatJoin(node.Join)
	}

	return annotate(&n.ObjectMeta, want), nil
}

// warnOfSize reports a node that joins a cluster of the largest supported size. It is served all
// the same.
func (w *worker) warnOfSize(k plan.Key) {
	if n := w.allocator.Usage(0).Nodes; n > plan.SupportedNodes {
		w.log.Warn("cluster is larger than supported",
			"nodes", n, "supported", plan.SupportedNodes, "node", k.Name)
		w.report(k, reasonBeyondSize, fmt.Errorf("the cluster has %d nodes with a pod subnet, and %d are "+
			"supported", n, plan.SupportedNodes))
	}
}

// allocatePod also removes the annotations of a pod without allocation that cannot have the
// annotated addresses. Otherwise the next leader would take these addresses for the pod's.
func (w *worker) allocatePod(k plan.Key, n *corev1.Node, p *corev1.Pod) (*patch, error) {
	network, conflict, err := w.allocator.Pod(n, p, w.cluster.NodePods)
	if conflict != nil {
		w.report(k, reasonReallocated, conflict)
	}

	switch {
	case errors.Is(err, ipam.ErrNodeBehind):
		return nil, err
	case err != nil && len(network.Addresses) == 0 && annotated(p):
		return annotate(&p.ObjectMeta, map[string]any{annotation.PodNetworks: nil, annotation.FirstPod: nil}), nil
	case err != nil:
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	case len(network.Addresses) == 0:
		return nil, nil
	}

	return w.restore(p, network), nil
}

// annotated reports whether the pod has an annotation with addresses. The annotation may be empty.
func annotated(p *corev1.Pod) bool {
	_, has := p.Annotations[annotation.PodNetworks]
	_, first := p.Annotations[annotation.FirstPod]

	return has || first
}

// restore returns the patch that makes the pod's annotations equal to its allocation, nil if they
// are. It removes the first generation's annotation if that differs and this controller does not
// write it.
func (w *worker) restore(p *corev1.Pod, network annotation.Pod) *patch {
	want := map[string]any{}
	if text := annotation.FormatPod(network); p.Annotations[annotation.PodNetworks] != text {
		want[annotation.PodNetworks] = text
	}

	text, said := annotation.FormatFirstPod(network), p.Annotations[annotation.FirstPod]
	switch _, has := p.Annotations[annotation.FirstPod]; {
	case said == text:
	case w.first:
		want[annotation.FirstPod] = text
	case has:
		want[annotation.FirstPod] = nil
	}

	return annotate(&p.ObjectMeta, want)
}

// allocated reports whether the pods' ports have the addresses that are allocated to the pods. An
// annotation may have changed since it was compared; that change enqueues the key again.
func (w *worker) allocated(rows []plan.Row) bool {
	for _, r := range rows {
		port, ok := r.(plan.LogicalSwitchPort)
		if !ok || port.Incarnation == "" {
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
func (w *worker) release(k plan.Key, rows []plan.Row) (node bool) {
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

// allocatedTo returns the keys of all objects with an allocation, in no order.
func (w *worker) allocatedTo() []plan.Key {
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
