// Package churntest changes a cluster at random, for tests: the same changes for a
// stand-in of the API server and for a real one.
package churntest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resources, by the names that the API server gives them.
const (
	Nodes          = "nodes"
	Pods           = "pods"
	Services       = "services"
	EndpointSlices = "endpointslices"
	Namespaces     = "namespaces"
	Policies       = "networkpolicies"
)

// API is where the objects are.
type API interface {
	// All returns a resource's objects by key. They are not to be changed.
	All(resource string) []metav1.Object
	// Put creates an object.
	Put(obj metav1.Object)
	// Edit calls change with a copy of an object and keeps what it becomes, unless there
	// is no such object.
	Edit(resource, key string, change func(metav1.Object))
	// Remove deletes an object, if there is one.
	Remove(resource, key string)
}

// Edit is API.Edit with the object's type.
func Edit[T metav1.Object](api API, resource, key string, change func(T)) {
	api.Edit(resource, key, func(obj metav1.Object) {
		if typed, ok := obj.(T); ok {
			change(typed)
		}
	})
}

// ResourceOf is the object's resource. It panics for what no churn makes.
func ResourceOf(obj metav1.Object) string {
	switch obj.(type) {
	case *corev1.Node:
		return Nodes
	case *corev1.Pod:
		return Pods
	case *corev1.Service:
		return Services
	case *discoveryv1.EndpointSlice:
		return EndpointSlices
	case *corev1.Namespace:
		return Namespaces
	case *networkingv1.NetworkPolicy:
		return Policies
	}
	panic(fmt.Sprintf("no resource of %T", obj))
}

// Key is NAMESPACE/NAME, or NAME of what has no namespace.
func Key(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

// SplitKey is the other way round.
func SplitKey(key string) (namespace, name string) {
	if before, after, ok := strings.Cut(key, "/"); ok {
		return before, after
	}
	return "", key
}
