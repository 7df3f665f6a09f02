package plan

import (
	"iter"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Cluster is the observed cluster, which plans read. The caller fills the exported fields and then
// keeps the objects in the stores current. After each change it calls Affected. Rows and Affected
// may be called concurrently. Objects in stores must not be changed, only replaced.
type Cluster struct {
	Config Config
	Stores map[Kind]Store // one for each kind with a Resource, with its indexes; the map is never changed
	// Servers returns the API servers and databases that the settings name. After a change of the
	// result, the caller plans the owners of ControlPlaneAffects again. Nil: there are none.
	Servers func() services.ControlPlane

	// Caches. They follow from the stores, see Keys and ForgetAccounts.
	lastServiceNodes atomic.Pointer[serviceNodes] // result of the last call of serviceNodes
	usages           usageCache                   // of the policies
	accounting       accounting                   // of Services and host ports
	budgets          budgets                      // of the policies' namespaces
}

// Config holds the settings of the plan. All prefixes are masked. Those of ExternalIPs and
// PodTunnels may overlap others.
type Config struct {
	ClusterCIDRs  []netip.Prefix // pods' addresses
	ServiceCIDRs  []netip.Prefix
	JoinSubnets   []netip.Prefix // at most one per family
	ExternalIPs   []netip.Prefix // allowed external IPs of Services; nil: none
	PodTunnels    []netip.Prefix // networks to which pods may send Geneve packets, besides pods; never to nodes
	Hosts         annotation.Trust
	ChassisOfNode bool // the chassis of a node has the Node's name
	TrustSlices   bool // only the control plane can write EndpointSlices with its label
	Shares        services.Shares
	SNATPorts     cluster.PortRange // of nodes without a range of their own
	MTU           int               // of pods
	BFD           bool              // on gateway routers' default routes
	ACLLogRate    int               // messages per second and ACL; 0: DefaultACLLogRate
}

// Store is a set of objects as informers keep them. cache.Indexer implements it.
type Store interface {
	GetByKey(key string) (obj any, exists bool, err error) // "name" or "namespace/name"
	ByIndex(index, value string) ([]any, error)
	List() []any
}

// SupportedNodes is the size of the largest supported cluster. docs/scale.md has the figures.
const SupportedNodes = 100

// Names of the indexes of a Cluster's stores. ByFrontend (claim.go) is another one.
const (
	ByNode      = "node"          // of pods, by NodeOf
	ByService   = "service"       // of endpoint slices, by ServiceOf
	ByNamespace = "pod-namespace" // of pods, by NamespaceOf
	ByPortName  = "port"          // of pods, by PortNamesOf
	ByPods      = "pods"          // of policies, by PodsOf
	BySelector  = "selector"      // of policies, by SelectorsOf
)

// NodeOf is the index function for ByNode. It returns the node that a pod is bound to.
func NodeOf(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return nil, nil
	}

	return []string{p.Spec.NodeName}, nil
}

// NamespaceOf is the index function for ByNamespace. It returns the namespace of a pod.
func NamespaceOf(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}

	return []string{p.Namespace}, nil
}

// ServiceOf is the index function for ByService. It returns the service of an endpoint slice as
// namespace/name.
func ServiceOf(obj any) ([]string, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}

	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
}

// Node returns the node, or nil.
func (c *Cluster) Node(name string) *corev1.Node { return get[corev1.Node](c, NodeKey(name)) }

// Pod returns the pod, or nil.
func (c *Cluster) Pod(namespace, name string) *corev1.Pod {
	return get[corev1.Pod](c, PodKey(namespace, name))
}

// Service returns the service, or nil.
func (c *Cluster) Service(namespace, name string) *corev1.Service {
	return get[corev1.Service](c, ServiceKey(namespace, name))
}

// Namespace returns the namespace, or nil.
func (c *Cluster) Namespace(name string) *corev1.Namespace {
	return get[corev1.Namespace](c, Key{Kind: KindNamespace, Name: name})
}

// NodePods returns the pods bound to the node, in undefined order.
func (c *Cluster) NodePods(name string) []*corev1.Pod {
	return index[corev1.Pod](c, KindPod, ByNode, name)
}

// slicesOf returns the EndpointSlices of a Service.
func (c *Cluster) slicesOf(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return index[discoveryv1.EndpointSlice](c, KindEndpointSlice, ByService,
		service.Namespace+"/"+service.Name)
}

// Object returns the owner's object. It is nil if the object does not exist or the owner is not an
// object.
func (c *Cluster) Object(k Key) runtime.Object {
	store := c.Stores[k.Kind]
	if store == nil {
		return nil
	}

	obj, _, _ := store.GetByKey(k.object()) // an in-memory store returns no error
	o, _ := obj.(runtime.Object)

	return o
}

// get returns the owner's object, whose type is *T, or nil.
func get[T any](c *Cluster, k Key) *T {
	obj, _, _ := c.Stores[k.Kind].GetByKey(k.object()) // an in-memory store returns no error
	t, _ := obj.(*T)

	return t
}

// index returns the objects of the kind, whose type is *T, with a value in the named index.
func index[T any](c *Cluster, k Kind, name, value string) []*T {
	objs, err := c.Stores[k].ByIndex(name, value)
	if err != nil {
		panic(err) // a store without its index is a programming error
	}

	out := make([]*T, 0, len(objs))
	for _, obj := range objs {
		if t, ok := obj.(*T); ok {
			out = append(out, t)
		}
	}

	return out
}

// Objects yields all objects of the kind, whose type is *T, in undefined order.
func Objects[T any](c *Cluster, k Kind) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, obj := range c.Stores[k].List() {
			if t, ok := obj.(*T); ok && !yield(t) {
				return
			}
		}
	}
}
