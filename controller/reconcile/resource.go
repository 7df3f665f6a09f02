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
	name     string
	store    plan.Store
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	informer *informer.Informer
}

// resources make the cluster the stores of informers, and are all that it consists of, those
// first that books are made from.
func resources(client kubernetes.Interface, c *plan.Cluster, log *slog.Logger) []resource {
	core, discovery, networking := client.CoreV1(), client.DiscoveryV1(), client.NetworkingV1()
	return []resource{
		newResource(nodesResource, &c.Nodes, &corev1.Node{}, core.Nodes(), nil, log),
		newResource(podsResource, &c.Pods, &corev1.Pod{}, core.Pods(""), podIndexers(), log),
		newResource("services", &c.Services, &corev1.Service{}, core.Services(""), serviceIndexers(), log),
		newResource("endpointslices", &c.EndpointSlices, &discoveryv1.EndpointSlice{}, discovery.EndpointSlices(""), sliceIndexers(), log),
		newResource("namespaces", &c.Namespaces, &corev1.Namespace{}, core.Namespaces(), nil, log),
		newResource("networkpolicies", &c.Policies, &networkingv1.NetworkPolicy{}, networking.NetworkPolicies(""), policyIndexers(), log),
	}
}

func newResource[L runtime.Object](
	name string, store *plan.Store, example runtime.Object, client informer.Client[L], indexers cache.Indexers, log *slog.Logger,
) resource {
	inf := informer.New(client, informer.Options{
		Name: name, Example: example, Transform: strip, Indexers: indexers, RetryMax: watchRetryMax, Log: log,
	})
	*store = inf.GetIndexer()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }
	return resource{name, *store, list, inf}
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
