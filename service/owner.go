package service

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is the kind of an object that asks for frontends.
type Kind uint8

const (
	KindService Kind = iota // a Service with its endpoint slices
	KindPod                 // a pod with host ports
)

// String is the kind's name in Kubernetes.
func (k Kind) String() string {
	if k == KindPod {
		return "Pod"
	}
	return "Service"
}

// Key names an object that asks for frontends.
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

// Owner is an object that asks for frontends.
type Owner struct {
	Key
	Created time.Time
}

// Precedes reports whether o gets a frontend that both ask for: the older one, or of the same age
// the one with the smaller key.
func (o Owner) Precedes(p Owner) bool {
	return cmp.Or(o.Created.Compare(p.Created), o.Compare(p.Key)) < 0
}

// OwnerOfService returns the Service as an owner of frontends.
func OwnerOfService(svc *corev1.Service) Owner { return ownerOf(KindService, svc.ObjectMeta) }

// OwnerOfPod returns the pod as an owner of frontends.
func OwnerOfPod(pod *corev1.Pod) Owner { return ownerOf(KindPod, pod.ObjectMeta) }

func ownerOf(kind Kind, m metav1.ObjectMeta) Owner {
	return Owner{Key{kind, m.Namespace, m.Name}, m.CreationTimestamp.Time}
}
