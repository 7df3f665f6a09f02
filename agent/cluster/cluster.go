// Package cluster is the agent's view of Kubernetes: its own Node, the pods
// that run on it, and all Services. The agent writes nothing but annotations
// of its Node.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Handlers are called after a change, from the informers' goroutines; they
// must not block.
type Handlers struct {
	Node     func()
	Services func()
	Synced   func() // once, when every list has been read
}

// Cluster holds the informers. It is safe for concurrent use.
type Cluster struct {
	node      string
	client    kubernetes.Interface
	factories []informers.SharedInformerFactory
	nodes     cache.SharedIndexInformer
	pods      cache.SharedIndexInformer
	services  cache.SharedIndexInformer
	podLister corelisters.PodLister
	synced    func()

	mu      sync.Mutex // guards waiters
	waiters map[types.NamespacedName]map[chan struct{}]bool
}

// New builds the informers; Run starts them.
func New(config *rest.Config, node string, h Handlers) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build Kubernetes client: %w", err)
	}
	only := func(field string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, node).String()
		})
	}
	nodes := informers.NewSharedInformerFactoryWithOptions(client, 0, only("metadata.name"))
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, only("spec.nodeName"))
	all := informers.NewSharedInformerFactory(client, 0)
	c := &Cluster{
		node: node, client: client, synced: h.Synced,
		factories: []informers.SharedInformerFactory{nodes, pods, all},
		nodes:     nodes.Core().V1().Nodes().Informer(),
		pods:      pods.Core().V1().Pods().Informer(),
		services:  all.Core().V1().Services().Informer(),
		podLister: pods.Core().V1().Pods().Lister(),
		waiters:   map[types.NamespacedName]map[chan struct{}]bool{},
	}
	for _, r := range []struct {
		informer cache.SharedIndexInformer
		do       func(any)
	}{
		{c.nodes, func(any) { h.Node() }},
		{c.services, func(any) { h.Services() }},
		{c.pods, c.podChanged},
	} {
		if _, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: r.do, UpdateFunc: func(_, o any) { r.do(o) }, DeleteFunc: r.do,
		}); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
	}
	return c, nil
}

// Run fills and follows the informers until ctx ends. An API server that
// cannot be reached is tried again for ever.
func (c *Cluster) Run(ctx context.Context) error {
	for _, f := range c.factories {
		f.Start(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), c.nodes.HasSynced, c.pods.HasSynced, c.services.HasSynced) {
		c.synced()
	}
	<-ctx.Done()
	for _, f := range c.factories {
		f.Shutdown()
	}
	return nil
}

// Missing says which informer has not been filled yet, or "".
func (c *Cluster) Missing() string {
	for _, i := range []struct {
		name     string
		informer cache.SharedIndexInformer
	}{{"nodes", c.nodes}, {"pods", c.pods}, {"services", c.services}} {
		if !i.informer.HasSynced() {
			return "Kubernetes API: the list of " + i.name + " has not been read yet"
		}
	}
	return ""
}

// Node returns the agent's own Node, or nil as long as there is none.
func (c *Cluster) Node() *corev1.Node {
	o, ok, err := c.nodes.GetStore().GetByKey(c.node)
	if err != nil || !ok {
		return nil
	}
	return o.(*corev1.Node)
}

// Services returns all Services, and false as long as they are not known.
func (c *Cluster) Services() ([]*corev1.Service, bool) {
	if !c.services.HasSynced() {
		return nil, false
	}
	var out []*corev1.Service
	for _, o := range c.services.GetStore().List() {
		out = append(out, o.(*corev1.Service))
	}
	return out, true
}

// Annotate merges annotations into the Node.
func (c *Cluster) Annotate(ctx context.Context, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", c.node, err)
	}
	if _, err := c.client.CoreV1().Nodes().Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate node %s: %w", c.node, err)
	}
	return nil
}

// WaitPod returns the pod when ready says so (nil for as long as it should
// wait on), or an error that says what was missing when ctx ended. A pod that
// is not on this node is one that does not exist.
func (c *Cluster) WaitPod(ctx context.Context, namespace, name string, ready func(*corev1.Pod) error) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	wake := make(chan struct{}, 1)
	c.wait(key, wake, true)
	defer c.wait(key, wake, false)
	for {
		pod, err := c.podLister.Pods(namespace).Get(name)
		if err == nil {
			err = ready(pod)
		}
		if err == nil {
			return pod, nil
		}
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("it is not known on node %s", c.node)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for pod %s: %w: %w", key, err, ctx.Err())
		}
	}
}

func (c *Cluster) wait(key types.NamespacedName, wake chan struct{}, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		if c.waiters[key] == nil {
			c.waiters[key] = map[chan struct{}]bool{}
		}
		c.waiters[key][wake] = true
		return
	}
	delete(c.waiters[key], wake)
	if len(c.waiters[key]) == 0 {
		delete(c.waiters, key)
	}
}

func (c *Cluster) podChanged(o any) {
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for wake := range c.waiters[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}
