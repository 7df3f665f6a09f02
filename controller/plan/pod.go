package plan

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// NeedsPort says whether the pod is one that has, or shall get, a port and
// addresses of its own: bound to a node, not on the host's network, not over.
func NeedsPort(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName != "" && !p.Spec.HostNetwork &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// podRows are the pod's port on its node's switch, once it has addresses and
// the node has a switch, and the load balancers of its host ports.
func podRows(c *Cluster, key Key) ([]Row, error) {
	pod := c.Pod(key.Namespace, key.Name)
	if !NeedsPort(pod) {
		return nil, nil
	}
	obj := c.Node(pod.Spec.NodeName)
	if obj == nil {
		return nil, nil
	}
	var network annotation.Pod
	if err := optional(&network, pod.Annotations, annotation.ParsePod); err != nil {
		return nil, err
	}
	var subnets []netip.Prefix
	if err := optional(&subnets, obj.Annotations, annotation.ParseNodeSubnets); err != nil {
		return nil, fmt.Errorf("node %q: %w", obj.Name, err)
	}
	if len(network.Addresses) == 0 || len(subnets) == 0 {
		return nil, nil
	}
	for _, a := range network.Addresses {
		if !contains(subnets, a.Addr()) {
			return nil, fmt.Errorf("address %s is outside of the subnets of node %q", a.Addr(), obj.Name)
		}
	}
	addresses := PortAddresses(network)
	rows, err := hostPortRows(c, pod, obj, network.Addresses)
	return append(rows, LogicalSwitchPort{
		Switch: obj.Name, Groups: c.groups(pod), Name: pod.Namespace + "_" + pod.Name, Incarnation: string(pod.UID),
		Addresses: []string{addresses}, PortSecurity: []string{addresses},
		Options:     map[string]string{"requested-chassis": obj.Name, "iface-id-ver": string(pod.UID)},
		ExternalIDs: map[string]string{"namespace": pod.Namespace, "pod": "true"},
	}), err
}

// PortAddresses is what the port of a pod has in its columns addresses and port_security.
func PortAddresses(network annotation.Pod) string {
	out := network.MAC.String()
	for _, a := range network.Addresses {
		out += " " + a.Addr().String()
	}
	return out
}
