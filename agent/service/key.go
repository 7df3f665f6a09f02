package service

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Kind is what kind of object a plan is of.
type Kind uint8

const (
	KindService Kind = iota // a Service with its EndpointSlices
	KindPod                 // a pod with host ports
)

// String is the kind's name in Kubernetes.
func (k Kind) String() string {
	if k == KindPod {
		return "Pod"
	}
	return "Service"
}

// Key names an object that asks for front ends.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// String is "Service default/web".
func (k Key) String() string { return k.Kind.String() + " " + k.Namespace + "/" + k.Name }

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Objects is what the cluster has under a Key. Nil for what is not there. The
// objects are only read.
type Objects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // of the Service, in any order
	Pod     *corev1.Pod
}
