package underlay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// watchRetryMax bounds the backoff of watches. It is short, because one controller is hardly any
// load for the API server, and all nodes wait for it.
const watchRetryMax = 2 * time.Second

// objects are the informers of what the controller reads.
type objects struct {
	nodes, pods, policies, maps *informer.Informer // maps: the ConfigMaps with pools

	nodesChanged, policiesChanged, mapsChanged loop.Signal
}

func newObjects(client kubernetes.Interface, log *slog.Logger) (*objects, error) {
	options := func(name string, example runtime.Object) informer.Options {
		return informer.Options{
			Name:      name,
			Example:   example,
			Transform: trim,
			RetryMax:  watchRetryMax,
			Log:       log,
		}
	}

	pods := options("pods", &corev1.Pod{})
	pods.Select = func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	}

	o := &objects{
		nodes: informer.New(client.CoreV1().Nodes(), options("nodes", &corev1.Node{})),
		pods:  informer.New(client.CoreV1().Pods(""), pods),
		policies: informer.New(client.NetworkingV1().NetworkPolicies(""),
			options("network policies", &networkingv1.NetworkPolicy{})),
		maps: informer.New(client.CoreV1().ConfigMaps(annotation.PoolNamespace),
			options("ConfigMaps", &corev1.ConfigMap{})),
		nodesChanged: loop.NewSignal(), policiesChanged: loop.NewSignal(), mapsChanged: loop.NewSignal(),
	}
	for i, changed := range map[*informer.Informer]loop.Signal{
		o.nodes: o.nodesChanged, o.pods: o.nodesChanged, o.policies: o.policiesChanged, o.maps: o.mapsChanged,
	} {
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed.Trigger() },
			UpdateFunc: func(any, any) { changed.Trigger() },
			DeleteFunc: func(any) { changed.Trigger() },
		})
		if err != nil {
			return nil, fmt.Errorf("watch cluster: %w", err)
		}
	}

	return o, nil
}

func (o *objects) all() []*informer.Informer {
	return []*informer.Informer{o.nodes, o.pods, o.policies, o.maps}
}

// run follows the API server until ctx ends.
func (o *objects) run(ctx context.Context) error {
	var group sync.WaitGroup
	for _, i := range o.all() {
		group.Go(func() { i.RunWithContext(ctx) })
	}

	group.Wait()

	return nil
}

// synced waits for the first complete lists. It returns false if ctx ends before that.
func (o *objects) synced(ctx context.Context) bool {
	var all []cache.InformerSynced
	for _, i := range o.all() {
		all = append(all, i.HasSynced)
	}

	return cache.WaitForCacheSync(ctx.Done(), all...)
}

// trim keeps what the controller reads, because the stores hold the whole cluster.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		var annotations map[string]string

		for _, key := range []string{annotation.Underlay, annotation.UnderlayPrefixLength} {
			if value, ok := o.Annotations[key]; ok {
				if annotations == nil {
					annotations = map[string]string{}
				}

				annotations[key] = value
			}
		}

		o.ObjectMeta = identity(o)
		o.Annotations = annotations
		o.Spec = corev1.NodeSpec{ProviderID: o.Spec.ProviderID}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses, Capacity: o.Status.Capacity}
	case *corev1.Pod:
		o.ObjectMeta = identity(o)
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase}
	case *networkingv1.NetworkPolicy:
		o.ObjectMeta = identity(o)
		o.Spec = networkingv1.NetworkPolicySpec{}
	case *corev1.ConfigMap:
		o.ObjectMeta = identity(o)
	}

	return obj, nil
}

// identity returns the identity, version and age of an object.
func identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
	}
}

// podsByNode returns the number of pods on the pod network that have not finished, by node.
func (o *objects) podsByNode() map[string]int {
	out := map[string]int{}

	for _, obj := range o.pods.GetStore().List() {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || p.Spec.HostNetwork {
			continue
		}

		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out[p.Spec.NodeName]++
		}
	}

	return out
}

// list returns the objects of a store.
func list[T any](i *informer.Informer) []T {
	var out []T

	for _, obj := range i.GetStore().List() {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}

	return out
}
