package plan

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// NeedsPort reports whether the pod needs a port and addresses of its own: it is bound to a node,
// does not use the host's network and has not ended.
func NeedsPort(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName != "" && !p.Spec.HostNetwork &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// podRows returns the pod's port on its node's switch, and the load balancers of its host ports. It
// returns no rows before the pod has addresses and the node a subnet. If addresses are outside of
// the node's subnets, it returns an error.
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
		if !cluster.Contains(subnets, a.Addr()) {
			return nil, fmt.Errorf("address %s is outside of the subnets of node %q", a.Addr(), obj.Name)
		}
	}

	if err := c.checkPortName(key); err != nil {
		return nil, newUnserved(err)
	}

	addresses := PortAddresses(network)

	// If the error is an *Unserved, Rows keeps the rows: the pod gets its port even if host ports are
	// not served.
	rows, err := hostPortRows(c, hostPod(pod), obj)

	groups, access := c.portGroups(pod)

	return append(rows, LogicalSwitchPort{
		Switch:       nodeSwitch(obj.Name),
		Groups:       groups,
		Access:       access,
		Name:         podPort(pod.Namespace, pod.Name),
		Incarnation:  string(pod.UID),
		Addresses:    []string{addresses},
		PortSecurity: []string{addresses},
		Options:      map[string]string{"requested-chassis": obj.Name, "iface-id-ver": string(pod.UID)},
		ExternalIDs:  map[string]string{"namespace": pod.Namespace, "pod": "true"},
	}), err
}

// podPort returns the name of a pod's port. The name is unique, because neither part has an
// underscore.
func podPort(namespace, name string) string { return namespace + "_" + name }

// checkPortName returns an error if the pod's port would have the name of a node's external port,
// <bridge>_<node>. The node takes precedence, whichever is older.
func (c *Cluster) checkPortName(key Key) error {
	n := c.Node(key.Name) // the only node whose external port can have this name
	if n == nil || uplinkConflict(n) != key {
		return nil
	}

	return fmt.Errorf("in this namespace, its port has the name that the port of node %q to the network outside has",
		n.Name)
}

// uplinkConflict returns the key of the pod, existing or not, whose port would have the name of the
// node's external port. It returns the zero Key if the node's annotation is missing or malformed.
func uplinkConflict(n *corev1.Node) Key {
	gateway, err := annotation.ParseGateway(n.Annotations)
	if err != nil {
		return Key{}
	}

	namespace, name, _ := strings.Cut(gateway.InterfaceID, "_")

	return PodKey(namespace, name)
}

// PortAddresses returns the value of the columns addresses and port_security of a pod's port.
func PortAddresses(network annotation.Pod) string {
	out := network.MAC.String()
	for _, a := range network.Addresses {
		out += " " + a.Addr().String()
	}

	return out
}

// trimPod drops all fields except those that plans and allocation read, because the stores hold the
// whole cluster.
func trimPod(obj any) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.Spec = corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
			Containers: append(services.HostPortContainers(p), namedPortContainers(p)...),
		}
		p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs}
	}
}
