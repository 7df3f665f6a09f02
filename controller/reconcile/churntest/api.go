// Package churntest changes a cluster at random, for tests with a stand-in of the API server or
// with a real one. Churn.Step (churn.go) makes one change through an API.
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

// API is the API server, or its stand-in. Keys are those of the function Key.
type API interface {
	// All returns a resource's objects, sorted by key. They must not be changed, and may lack all
	// fields but namespace and name.
	All(resource string) []metav1.Object
	// Put creates an object.
	Put(obj metav1.Object)
	// Edit calls change with a copy of an object, and writes the copy. It does nothing if the object
	// does not exist.
	Edit(resource, key string, change func(metav1.Object))
	// Remove deletes an object, if it exists.
	Remove(resource, key string)
}

// Edit calls API.Edit with a function for the object's type.
func Edit[T metav1.Object](api API, resource, key string, change func(T)) {
	api.Edit(resource, key, func(obj metav1.Object) {
		if typed, ok := obj.(T); ok {
			change(typed)
		}
	})
}

// putOrEdit creates the object after describe has filled it. If an object of that name exists,
// describe changes that one instead.
func putOrEdit[T metav1.Object](api API, obj T, describe func(T)) {
	found := false

	Edit(api, ResourceOf(obj), Key(obj), func(old T) {
		found = true

		describe(old)
	})

	if !found {
		describe(obj)
		api.Put(obj)
	}
}

// ResourceOf returns the object's resource. It panics for a type that Churn does not create.
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

// Key returns NAMESPACE/NAME, or NAME of an object without a namespace.
func Key(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}

	return obj.GetNamespace() + "/" + obj.GetName()
}

// SplitKey returns the namespace and the name in a key. The namespace may be "".
func SplitKey(key string) (namespace, name string) {
	if before, after, ok := strings.Cut(key, "/"); ok {
		return before, after
	}

	return "", key
}
