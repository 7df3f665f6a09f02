package reconcile

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/informer"
)

// watchRetryMax is short: one controller is no load, and all nodes wait for it.
const watchRetryMax = 2 * time.Second

const (
	nodesResource = "nodes"
	podsResource  = "pods"
)

// resource is a kind of objects that plans read: the informer's store, and the
// API server's own answer.
type resource struct {
	name  string
	store plan.Store
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// newSource makes the cluster the stores of informers, of all that it consists of: those
// first that books are made from.
func newSource(client kubernetes.Interface, c *plan.Cluster, log *slog.Logger) source {
	core, discovery, networking := client.CoreV1(), client.DiscoveryV1(), client.NetworkingV1()
	s := source{annotate: newAnnotator(client), serviceCIDRs: informer.New(networking.ServiceCIDRs(), informer.Options{
		Name: "servicecidrs", Example: &networkingv1.ServiceCIDR{}, Transform: strip, RetryMax: watchRetryMax, Log: log,
	})}
	c.ServiceCIDRs = s.serviceCIDRs.GetIndexer()
	add(&s, nodesResource, &c.Nodes, &corev1.Node{}, core.Nodes(), nil, log)
	add(&s, podsResource, &c.Pods, &corev1.Pod{}, core.Pods(""), podIndexers(), log)
	add(&s, "services", &c.Services, &corev1.Service{}, core.Services(""), serviceIndexers(), log)
	add(&s, "endpointslices", &c.EndpointSlices, &discoveryv1.EndpointSlice{}, discovery.EndpointSlices(""), sliceIndexers(), log)
	add(&s, "namespaces", &c.Namespaces, &corev1.Namespace{}, core.Namespaces(), nil, log)
	add(&s, "networkpolicies", &c.Policies, &networkingv1.NetworkPolicy{}, networking.NetworkPolicies(""), policyIndexers(), log)
	return s
}

func add[L runtime.Object](
	s *source, name string, store *plan.Store, example runtime.Object, client informer.Client[L], indexers cache.Indexers, log *slog.Logger,
) {
	i := informer.New(client, informer.Options{
		Name: name, Example: example, Transform: strip, Indexers: indexers, RetryMax: watchRetryMax, Log: log,
	})
	*store = i.GetIndexer()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }
	s.resources, s.informers = append(s.resources, resource{name, *store, list}), append(s.informers, i)
}

func podIndexers() cache.Indexers {
	return cache.Indexers{
		plan.ByNode: plan.NodeOf, plan.ByFront: plan.PodFronts,
		plan.ByNamespace: plan.NamespaceOf, plan.ByPortName: plan.PortNamesOf,
	}
}

func serviceIndexers() cache.Indexers { return cache.Indexers{plan.ByFront: plan.ServiceFronts} }

func policyIndexers() cache.Indexers {
	return cache.Indexers{plan.ByPods: plan.PodsOf, plan.BySelector: plan.SelectorsOf}
}

func sliceIndexers() cache.Indexers { return cache.Indexers{plan.ByService: plan.ServiceOf} }
