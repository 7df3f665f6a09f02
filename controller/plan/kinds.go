package plan

import (
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of row owners, of objects that plans read, or of both. The order of the kinds is
// that in which a cold start plans them: rows of a later kind refer to those of earlier kinds.
type Kind uint8

// The kinds. Each has an entry in newKinds. KindCluster and KindSelector are not objects of the API
// server. KindEndpointSlice and KindNamespace own no rows.
const (
	KindCluster Kind = iota + 1
	KindServiceCIDR
	KindNode
	KindService
	KindSelector
	KindPolicy
	KindPod
	KindEndpointSlice
	KindNamespace

	kindEnd
)

// entry describes a kind. The controller has no other list of kinds: watches, owners' names,
// events, metrics and the full sync follow from this one (docs/extending.md).
type entry struct {
	name       string // in owners' names and metrics
	namespaced bool

	// For kinds with objects in the API server:
	object   runtime.Object // a nil pointer of the objects' type
	resource schema.GroupVersionResource
	types    func(*runtime.Scheme) error // adds the objects' type to a scheme
	indexes  Indexes                     // of the kind's store
	optional bool                        // an API server may lack the resource; only for kinds without rows
	trim     func(obj any)               // drops the fields that no plan reads; nil: keeps all

	// For kinds that own rows:
	rows func(*Cluster, Key) ([]Row, error)
	keys func(*Cluster) []Key // nil: one key for each object

	// changed has a function for each kind of object. Affected calls it after a change of such an
	// object. The functions of this kind's own objects also add owners of other kinds.
	changed map[Kind]change
}

// change adds the keys of the owners whose rows may differ after the change of an object. old is
// nil for a new object, now for a deleted one.
type change func(c *Cluster, keys keySet, old, now any)

// newKinds returns the entries of all kinds, by Kind.
func newKinds() [kindEnd]entry {
	core, networking := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion

	return [kindEnd]entry{
		KindCluster: {
			name: "cluster", rows: clusterRows,
			keys: func(*Cluster) []Key { return []Key{ClusterKey()} },
		},
		KindServiceCIDR: {
			name:     "servicecidr",
			object:   (*networkingv1.ServiceCIDR)(nil),
			resource: networking.WithResource("servicecidrs"),
			types:    networkingv1.AddToScheme,
			optional: true, // Kubernetes 1.33
			rows:     serviceCIDRRows,
			changed:  map[Kind]change{KindServiceCIDR: addItself},
		},
		KindNode: {
			name:   "node",
			object: (*corev1.Node)(nil), resource: core.WithResource("nodes"), types: corev1.AddToScheme,
			trim: trimNode,
			rows: nodeRows, changed: map[Kind]change{KindNode: nodeChanged},
		},
		KindService: {
			name:       "service",
			namespaced: true,
			object:     (*corev1.Service)(nil),
			resource:   core.WithResource("services"),
			types:      corev1.AddToScheme,
			indexes:    Indexes{ByFrontend: ServiceFrontends},
			rows:       serviceRows,
			changed:    map[Kind]change{KindService: serviceChanged, KindEndpointSlice: sliceChanged},
		},
		KindSelector: {
			name: "selector",
			rows: selectorRows, keys: (*Cluster).selectorKeys,
		},
		KindPolicy: {
			name:       "policy",
			namespaced: true,
			object:     (*networkingv1.NetworkPolicy)(nil),
			resource:   networking.WithResource("networkpolicies"),
			types:      networkingv1.AddToScheme,
			indexes:    Indexes{ByPods: PodsOf, BySelector: SelectorsOf},
			rows:       policyRows,
			changed:    map[Kind]change{KindPolicy: policyChanged, KindNamespace: namespaceChanged},
		},
		KindPod: {
			name:       "pod",
			namespaced: true,
			object:     (*corev1.Pod)(nil),
			resource:   core.WithResource("pods"),
			types:      corev1.AddToScheme,
			indexes: Indexes{
				ByNode:      NodeOf,
				ByFrontend:  PodFrontends,
				ByNamespace: NamespaceOf,
				ByPortName:  PortNamesOf,
			},
			trim:    trimPod,
			rows:    podRows,
			changed: map[Kind]change{KindPod: podChanged},
		},
		KindEndpointSlice: {
			name:       "endpointslice",
			namespaced: true,
			object:     (*discoveryv1.EndpointSlice)(nil),
			resource:   discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
			types:      discoveryv1.AddToScheme,
			indexes:    Indexes{ByService: ServiceOf},
		},
		KindNamespace: {
			name:     "namespace",
			object:   (*corev1.Namespace)(nil),
			resource: core.WithResource("namespaces"),
			types:    corev1.AddToScheme,
		},
	}
}

// kinds is built at first use and never changed. A package-level initializer would be a cycle,
// because plan functions refer to kinds.
var kinds struct {
	sync.Once
	entries [kindEnd]entry
}

// entry returns the kind's entry, which must not be changed. It is empty for an unknown kind.
func (k Kind) entry() *entry {
	kinds.Do(func() { kinds.entries = newKinds() })

	if k >= kindEnd {
		k = 0 // no kind, so its entry is empty
	}

	return &kinds.entries[k]
}

// String returns the kind's name in owners' names and metrics.
func (k Kind) String() string {
	if name := k.entry().name; name != "" {
		return name
	}

	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Kinds returns all kinds in their order.
func Kinds() []Kind {
	out := make([]Kind, 0, kindEnd)
	for k := KindCluster; k < kindEnd; k++ {
		out = append(out, k)
	}

	return out
}

// OwnerKinds returns the kinds that own rows, in their order.
func OwnerKinds() []Kind {
	var out []Kind

	for _, k := range Kinds() {
		if k.entry().rows != nil {
			out = append(out, k)
		}
	}

	return out
}

// KindOf returns the kind of an object, or 0 if no plan reads such objects.
func KindOf(obj any) Kind {
	t := reflect.TypeOf(obj)
	for k := range kindEnd {
		if o := k.entry().object; o != nil && reflect.TypeOf(o) == t {
			return k
		}
	}

	return 0
}

// Indexes maps the names of a store's indexes to their functions.
type Indexes map[string]func(obj any) ([]string, error)

// Resource is a resource of the API server that plans read.
type Resource struct {
	Kind       Kind
	Object     runtime.Object // an empty one
	Namespaced bool
	Optional   bool // an API server may lack it; no startup step waits for its objects
	Indexes    Indexes
	schema.GroupVersionResource
}

// Resources returns the resources that a Cluster needs a store for, in the order of their kinds.
func Resources() []Resource {
	var out []Resource

	for _, k := range Kinds() {
		e := k.entry()
		if e.object == nil {
			continue
		}

		empty, _ := reflect.New(reflect.TypeOf(e.object).Elem()).Interface().(runtime.Object)
		out = append(out, Resource{k, empty, e.namespaced, e.optional, e.indexes, e.resource})
	}

	return out
}

// NewScheme returns a scheme with the types of all resources' objects.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()

	for _, k := range Kinds() {
		if e := k.entry(); e.types != nil {
			if err := e.types(s); err != nil {
				panic(err) // two types with the same name are a programming error
			}
		}
	}

	return s
}

// Trim drops the fields of an object that neither plans nor allocation read, before it gets into a
// store. The object must not be in use yet.
func Trim(obj any) {
	if trim := KindOf(obj).entry().trim; trim != nil {
		trim(obj)
	}
}
