package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// component is the source of Events.
const component = "ovnkube-agent"

// Warn writes an Event of type Warning about the agent's own Node, shown by "kubectl describe
// node". Each call creates a new Event.
func (c *Cluster) Warn(ctx context.Context, reason, message string) error {
	// As in kubelet, the Node's name stands for its UID.
	return c.warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.node, UID: types.UID(c.node)}, reason, message)
}

// WarnService writes an Event about a Service.
func (c *Cluster) WarnService(ctx context.Context, svc *corev1.Service, reason, message string) error {
	return c.warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID}, reason, message)
}

// WarnPod writes an Event about a pod.
func (c *Cluster) WarnPod(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	return c.warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, reason, message)
}

func (c *Cluster) warn(ctx context.Context, about corev1.ObjectReference, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	now, namespace := metav1.Now(), cmp.Or(about.Namespace, metav1.NamespaceDefault)
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: about.Name + ".", Namespace: namespace},
		InvolvedObject: about,
		Reason:         reason, Message: message, Type: corev1.EventTypeWarning,
		Source:         corev1.EventSource{Component: component, Host: c.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if _, err := c.client.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write event %s about %s %s: %w", reason, strings.ToLower(about.Kind), about.Name, err)
	}
	return nil
}
