package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Kinds of objects that a plan is of.
const (
	KindService = model.KindService
	KindPod     = model.KindPod
)

// Key names an object that asks for front ends.
type Key = model.Key

// Objects is what the cluster has under a Key. Nil for what is not there. The
// objects are only read.
type Objects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // of the Service, in any order
	Pod     *corev1.Pod
}
