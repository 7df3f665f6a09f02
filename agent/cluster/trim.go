package cluster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// trimmer removes the fields that the agent does not read from objects, before they enter the
// cluster-wide stores.
type trimmer struct {
	node    string
	yes, no bool              // shared by all endpoints, never modified
	anyPods map[string]string // replaces the selector of each Service that has one, never modified

	mu        sync.Mutex         // guards nodeNames
	nodeNames map[string]*string // each name once, shared by all endpoints of the node
}

func newTrimmer(node string) *trimmer {
	return &trimmer{node: node, yes: true, anyPods: map[string]string{"": ""}, nodeNames: map[string]*string{}}
}

// trim is the Transform of an informer. It modifies the object, and never fails.
func (t *trimmer) trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		t.trimNode(o)
	case *corev1.Pod:
		o.ManagedFields = nil
	case *corev1.Service:
		o.ObjectMeta = meta(o.ObjectMeta, service.ProxyNameLabel, corev1.IsHeadlessService)
		if len(o.Spec.Selector) > 0 {
			o.Spec.Selector = t.anyPods // package service only checks that a selector exists
		}

		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		o.ObjectMeta = meta(o.ObjectMeta, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy)
		for i := range o.Ports {
			o.Ports[i].AppProtocol = nil
		}

		for i := range o.Endpoints {
			t.trimEndpoint(&o.Endpoints[i])
		}
	}

	return o, nil
}

// trimNode keeps the labels, annotations, taints and addresses of the agent's own Node. Of other
// Nodes it keeps the addresses, and the annotations that methods of Cluster read.
func (t *trimmer) trimNode(n *corev1.Node) {
	taints := n.Spec.Taints
	n.Spec = corev1.NodeSpec{}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses}

	if n.Name == t.node {
		n.Spec.Taints = taints
		n.ManagedFields = nil

		return
	}

	published := n.Annotations
	n.ObjectMeta = meta(n.ObjectMeta)

	names := []string{
		// Trust.HostAddresses reads these.
		annotation.HostCIDRs, annotation.GatewayConfig, annotation.NodeSubnets, annotation.TunnelAddress,
		// ChassisTaken reads these.
		annotation.ChassisID, annotation.ChassisTakenBy,
	}
	for _, name := range names {
		if v, ok := published[name]; ok {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, name, v)
		}
	}
}

// trimEndpoint keeps the fields that package service reads, and makes many endpoints share equal
// values. Like kube-proxy, it ignores all addresses of an endpoint but the first.
func (t *trimmer) trimEndpoint(e *discoveryv1.Endpoint) {
	*e = discoveryv1.Endpoint{
		Addresses: e.Addresses[:min(1, len(e.Addresses))],
		Conditions: discoveryv1.EndpointConditions{
			Ready:       t.shareFlag(e.Conditions.Ready),
			Serving:     t.shareFlag(e.Conditions.Serving),
			Terminating: t.shareFlag(e.Conditions.Terminating),
		},
		NodeName: t.shareName(e.NodeName),
		Hints:    e.Hints,
	}
}

// shareName returns the pointer to the first string that was equal to this one.
func (t *trimmer) shareName(name *string) *string {
	if name == nil {
		return nil
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.nodeNames[*name] == nil {
		t.nodeNames[*name] = name
	}

	return t.nodeNames[*name]
}

// shareFlag returns a pointer to the trimmer's own value.
func (t *trimmer) shareFlag(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &t.yes
	}

	return &t.no
}

// meta returns the identity and version of an object, with the given labels.
func meta(m metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace:         m.Namespace,
		Name:              m.Name,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
	}
	for _, l := range labels {
		if v, ok := m.Labels[l]; ok {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}

			out.Labels[l] = v
		}
	}

	return out
}
