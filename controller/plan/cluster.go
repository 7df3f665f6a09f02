package plan

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	ExternalIPs  []netip.Prefix // where Services' external IPs may be; nil: anywhere
	SNATPorts    PortRange      // of nodes that do not say their own
	MTU          int            // of pods
	BFD          bool           // on gateway routers' default routes
	ACLLogRate   int            // messages a second and ACL; 0: DefaultACLLogRate
}

// Store is a set of objects as informers keep them: a cache.Indexer.
type Store interface {
	GetByKey(key string) (obj any, exists bool, err error) // "name" or "namespace/name"
	ByIndex(index, value string) ([]any, error)
	List() []any
}

// Cluster is the observed cluster: stores of *corev1.Node, *corev1.Pod,
// *corev1.Service, *discoveryv1.EndpointSlice, *corev1.Namespace,
// *networkingv1.NetworkPolicy and *networkingv1.ServiceCIDR, with the indexes named below.
type Cluster struct {
	Config         Config
	Nodes          Store
	Pods           Store
	Services       Store
	EndpointSlices Store
	Namespaces     Store
	Policies       Store
	ServiceCIDRs   Store // empty where the API server has none

	lastServers atomic.Pointer[servers] // of the nodes as they were last asked for
	usages      usages                  // of the policies
}

// Names of the indexes that a Cluster's stores have.
const (
	ByNode    = "node"    // of pods, by NodeOf
	ByService = "service" // of endpoint slices, by ServiceOf

	ByNamespace = "pod-namespace" // of pods, by NamespaceOf
	ByPortName  = "port"          // of pods, by PortNamesOf
	ByPods      = "pods"          // of policies, by PodsOf
	BySelector  = "selector"      // of policies, by SelectorsOf
)

// NodeOf is the index function for ByNode: the node that a pod is bound to.
func NodeOf(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{p.Spec.NodeName}, nil
}

// ServiceOf is the index function for ByService: the service that an endpoint
// slice is of, as namespace/name.
func ServiceOf(obj any) ([]string, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
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

// Namespace returns the namespace, or nil.
func (c *Cluster) Namespace(name string) *corev1.Namespace {
	return get[corev1.Namespace](c.Namespaces, name)
}

// Policy returns the policy, or nil.
func (c *Cluster) Policy(namespace, name string) *networkingv1.NetworkPolicy {
	return get[networkingv1.NetworkPolicy](c.Policies, namespace+"/"+name)
}

// ServiceCIDR returns the service network, or nil.
func (c *Cluster) ServiceCIDR(name string) *networkingv1.ServiceCIDR {
	return get[networkingv1.ServiceCIDR](c.ServiceCIDRs, name)
}

// NodePods returns the pods bound to the node, in no order.
func (c *Cluster) NodePods(name string) []*corev1.Pod { return index[corev1.Pod](c.Pods, ByNode, name) }

func (c *Cluster) slices(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return index[discoveryv1.EndpointSlice](c.EndpointSlices, ByService, service.Namespace+"/"+service.Name)
}

func get[T any](store Store, key string) *T {
	obj, _, _ := store.GetByKey(key) // an in-memory store returns no error
	t, _ := obj.(*T)
	return t
}

func index[T any](store Store, name, value string) []*T {
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
	add := func(kind Kind, store Store) {
		for _, obj := range store.List() {
			if o, ok := obj.(metav1.Object); ok {
				keys = append(keys, Key{kind, o.GetNamespace(), o.GetName()})
			}
		}
	}
	add(KindServiceCIDR, c.ServiceCIDRs)
	add(KindNode, c.Nodes)
	add(KindService, c.Services)
	keys = append(keys, c.selectorKeys()...)
	add(KindPolicy, c.Policies)
	add(KindPod, c.Pods)
	return sortKeys(keys)
}
