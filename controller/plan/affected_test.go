package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

func TestAffected(t *testing.T) {
	meta := func(namespace, name string, annotations ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}}
		for _, a := range annotations {
			m.Annotations[a] = "x"
		}
		return m
	}
	node := func(annotations ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: meta("", "n", annotations...)}
	}
	pod := func(phase corev1.PodPhase, annotations ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta("ns", "p", annotations...), Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
	}
	service := func(name string, nodePort int32) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta("ns", name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}}}}
	}
	slice := func(service string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: meta("ns", "s-1")}
		s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
		return s
	}
	emptied := pod(corev1.PodPending)
	emptied.Annotations[annotation.PodNetworks] = ""
	c, err := reconcile.NewCluster(plan.Config{}, pod(corev1.PodRunning), service("np", 30000), service("ip", 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		old, now any
		want     []string
	}{
		{"node added", nil, node(), []string{"cluster", "node/n", "service/ns/np", "pod/ns/p"}},
		{"node deleted", node(), nil, []string{"cluster", "node/n", "service/ns/np", "pod/ns/p"}},
		{"heartbeat of a node", node(), node("unrelated"), nil},
		{"node's subnets", node(), node(annotation.NodeSubnets), []string{"node/n", "service/ns/np", "pod/ns/p"}},
		{"node's addresses", node(), node(annotation.HostCIDRs), []string{"cluster", "node/n", "service/ns/np"}},
		{"node's management port", node(), node(annotation.ManagementMACs), []string{"node/n"}},
		{"pod added", nil, pod(corev1.PodPending), []string{"pod/ns/p"}},
		{"pod starts", pod(corev1.PodPending), pod(corev1.PodRunning), nil},
		{"pod ends", pod(corev1.PodRunning), pod(corev1.PodSucceeded), []string{"pod/ns/p"}},
		{"pod gets addresses", pod(corev1.PodPending), pod(corev1.PodPending, annotation.PodNetworks), []string{"pod/ns/p"}},
		{"pod's empty annotation removed", emptied, pod(corev1.PodPending), []string{"pod/ns/p"}},
		{"service", service("ip", 0), service("ip", 30001), []string{"service/ns/ip"}},
		{"endpoints", slice("a"), slice("a"), []string{"service/ns/a"}},
		{"endpoints move", slice("a"), slice("b"), []string{"service/ns/a", "service/ns/b"}},
		{"endpoints without a service", nil, slice(""), nil},
		{"endpoints deleted", slice("a"), nil, []string{"service/ns/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, k := range plan.Affected(c, tt.old, tt.now) {
				got = append(got, k.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
