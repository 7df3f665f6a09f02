package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Objects is what the cluster has under a Key; nil for what is absent. The objects are only read.
type Objects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // of the Service, in any order
	Pod     *corev1.Pod
}

// Meaning is what an object that asks for frontends means: one of both, or neither if it asks for
// nothing.
type Meaning struct {
	Service *Service
	Pod     *Pod
}

// Meaning returns what the objects mean to a node. The addresses of a pod are those of its status.
func (o Objects) Meaning(cfg Config) Meaning {
	m := Meaning{Service: New(cfg, o.Service, o.Slices)}
	if o.Pod != nil {
		m.Pod = NewPod(o.Pod, podIPs(o.Pod))
	}
	return m
}
