package plan

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Config is what the plan needs to know beside the objects. All prefixes are
// masked and do not overlap.
type Config struct {
	ClusterCIDRs []netip.Prefix // what pods' addresses come from
	ServiceCIDRs []netip.Prefix
	JoinSubnets  []netip.Prefix // at most one a family
	SNATPorts    PortRange      // of nodes that do not say their own
	MTU          int            // of pods
}

// Cluster is the observed cluster: stores of *corev1.Node, *corev1.Pod,
// *corev1.Service and *discoveryv1.EndpointSlice, keyed as informers key them.
// EndpointSlices has the index of SliceIndexers, Pods that of PodIndexers.
type Cluster struct {
	Config         Config
	Nodes          cache.Indexer
	Pods           cache.Indexer
	Services       cache.Indexer
	EndpointSlices cache.Indexer
}

const (
	byService = "service"
	byNode    = "node"
)

// SliceIndexers index EndpointSlices by their service.
func SliceIndexers() cache.Indexers {
	return cache.Indexers{byService: func(obj any) ([]string, error) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
			return nil, nil
		}
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
	}}
}

// PodIndexers index Pods by their node.
func PodIndexers() cache.Indexers {
	return cache.Indexers{byNode: func(obj any) ([]string, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{p.Spec.NodeName}, nil
	}}
}

// NewCluster returns a cluster without objects, whose stores the caller fills.
func NewCluster(cfg Config) *Cluster {
	return &Cluster{
		Config:         cfg,
		Nodes:          cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		Pods:           cache.NewIndexer(cache.MetaNamespaceKeyFunc, PodIndexers()),
		Services:       cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		EndpointSlices: cache.NewIndexer(cache.MetaNamespaceKeyFunc, SliceIndexers()),
	}
}

// Node returns the node, or nil.
func (c *Cluster) Node(name string) *corev1.Node { return get[corev1.Node](c.Nodes, name) }

// Pod returns the pod, or nil.
func (c *Cluster) Pod(namespace, name string) *corev1.Pod {
	return get[corev1.Pod](c.Pods, namespace+"/"+name)
}

// Service returns the service, or nil.
func (c *Cluster) Service(namespace, name string) *corev1.Service {
	return get[corev1.Service](c.Services, namespace+"/"+name)
}

// NodePods returns the pods bound to the node, in no order.
func (c *Cluster) NodePods(name string) []*corev1.Pod { return index[corev1.Pod](c.Pods, byNode, name) }

func (c *Cluster) slices(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return index[discoveryv1.EndpointSlice](c.EndpointSlices, byService, service.Namespace+"/"+service.Name)
}

func get[T any](store cache.Indexer, key string) *T {
	obj, _, _ := store.GetByKey(key) // an in-memory store returns no error
	t, _ := obj.(*T)
	return t
}

func index[T any](store cache.Indexer, name, value string) []*T {
	objs, err := store.ByIndex(name, value)
	if err != nil {
		panic(err) // a store without its index is a mistake in this program
	}
	out := make([]*T, 0, len(objs))
	for _, obj := range objs {
		if t, ok := obj.(*T); ok {
			out = append(out, t)
		}
	}
	return out
}

// Keys returns the keys of all objects, sorted.
func (c *Cluster) Keys() []Key {
	keys := []Key{ClusterKey()}
	add := func(kind Kind, store cache.Indexer) {
		for _, k := range store.ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(k)
			if err == nil {
				keys = append(keys, Key{kind, namespace, name})
			}
		}
	}
	add(KindNode, c.Nodes)
	add(KindService, c.Services)
	add(KindPod, c.Pods)
	return sortKeys(keys)
}
