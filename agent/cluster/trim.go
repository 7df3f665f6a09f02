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
	some    map[string]string // a selector shared by all Services with a selector, never modified

	mu    sync.Mutex // guards names
	names map[string]*string
}

func newTrimmer(node string) *trimmer {
	return &trimmer{node: node, yes: true, some: map[string]string{"": ""}, names: map[string]*string{}}
}

func (t *trimmer) trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		t.trimNode(o)
	case *corev1.Pod:
		o.ManagedFields = nil
	case *corev1.Service:
		o.ObjectMeta = meta(o.ObjectMeta, service.ProxyNameLabel, corev1.IsHeadlessService)
		if len(o.Spec.Selector) > 0 {
			o.Spec.Selector = t.some // package service only checks that a selector exists
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

func (t *trimmer) trimNode(n *corev1.Node) {
	taints := n.Spec.Taints
	n.Spec = corev1.NodeSpec{}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses}

	if n.Name == t.node {
		n.Spec.Taints = taints
		n.ManagedFields = nil

		return
	}

	said := n.Annotations
	n.ObjectMeta = meta(n.ObjectMeta)

	names := []string{
		// annotation.HostAddresses reads these.
		annotation.HostCIDRs, annotation.GatewayConfig, annotation.NodeSubnets, annotation.TunnelAddress,
		// ChassisTaken reads these.
		annotation.ChassisID, annotation.ChassisTakenBy,
	}
	for _, name := range names {
		if v, ok := said[name]; ok {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, name, v)
		}
	}
}

// trimEndpoint shares values that many endpoints have in common.
func (t *trimmer) trimEndpoint(e *discoveryv1.Endpoint) {
	*e = discoveryv1.Endpoint{
		Addresses: e.Addresses[:min(1, len(e.Addresses))],
		Conditions: discoveryv1.EndpointConditions{
			Ready:       t.flag(e.Conditions.Ready),
			Serving:     t.flag(e.Conditions.Serving),
			Terminating: t.flag(e.Conditions.Terminating),
		},
		NodeName: t.name(e.NodeName),
		Hints:    e.Hints,
	}
}

func (t *trimmer) name(s *string) *string {
	if s == nil {
		return nil
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.names[*s] == nil {
		t.names[*s] = s
	}

	return t.names[*s]
}

func (t *trimmer) flag(b *bool) *bool {
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
