package service

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of an object with frontends.
type Kind uint8

const (
	KindService Kind = iota // a Service with its endpoint slices
	KindPod                 // a pod with host ports
)

// String returns the kind's name in Kubernetes.
func (k Kind) String() string {
	if k == KindPod {
		return "Pod"
	}

	return "Service"
}

// Key identifies an object with frontends.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// String returns the key in the form "Service default/web".
func (k Key) String() string { return k.Kind.String() + " " + k.Namespace + "/" + k.Name }

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace),
		cmp.Compare(k.Name, o.Name))
}

// Owner is an object with frontends.
type Owner struct {
	Key
	Created time.Time
	UID     types.UID // the order of objects of the same age in a Ledger
}

// Precedes reports whether o gets a frontend that both claim. The older object wins; at the same
// age, the smaller key.
func (o Owner) Precedes(p Owner) bool {
	return cmp.Or(o.Created.Compare(p.Created), o.Compare(p.Key)) < 0
}

// OwnerOfService returns the Service as an owner of frontends.
func OwnerOfService(svc *corev1.Service) Owner { return ownerOf(KindService, svc.ObjectMeta) }

// OwnerOfPod returns the pod as an owner of frontends.
func OwnerOfPod(pod *corev1.Pod) Owner { return ownerOf(KindPod, pod.ObjectMeta) }

func ownerOf(kind Kind, m metav1.ObjectMeta) Owner {
	return Owner{Key{kind, m.Namespace, m.Name}, m.CreationTimestamp.Time, m.UID}
}

// Objects holds the cluster's objects of one Key, nil if absent. This package does not modify
// them.
type Objects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice // of the Service, in any order
	Pod     *corev1.Pod
}

// Meaning is the meaning of an object with frontends: a Service, a Pod, or neither if the object
// has no frontends.
type Meaning struct {
	Service *Service
	Pod     *Pod
}

// Meaning returns the meaning of the objects for a node. A pod has the addresses of its status.
func (o Objects) Meaning(cfg Config) Meaning {
	m := Meaning{Service: New(cfg, o.Service, o.Slices)}
	if o.Pod != nil {
		m.Pod = NewPod(o.Pod, podIPs(o.Pod))
	}

	return m
}
