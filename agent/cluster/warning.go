package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/event"
)

// component is the source of Events.
const component = "ovnkube-agent"

// Warn writes an Event of type Warning about the agent's own Node, shown by "kubectl describe
// node". Each call creates a new Event.
func (c *Cluster) Warn(ctx context.Context, reason, message string) error {
	return c.warn(ctx, event.Node(c.node), reason, message)
}

// WarnService writes an Event about a Service.
func (c *Cluster) WarnService(ctx context.Context, svc *corev1.Service, reason, message string) error {
	about := corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Service",
		Namespace:  svc.Namespace,
		Name:       svc.Name,
		UID:        svc.UID,
	}

	return c.warn(ctx, about, reason, message)
}

// WarnPod writes an Event about a pod.
func (c *Cluster) WarnPod(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	about := corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  pod.Namespace,
		Name:       pod.Name,
		UID:        pod.UID,
	}

	return c.warn(ctx, about, reason, message)
}

func (c *Cluster) warn(ctx context.Context, about corev1.ObjectReference, reason, message string) error {
	return event.Write(ctx, c.client, event.Event{
		About: about, Reason: reason, Message: message, Component: component, Host: c.node,
	})
}
