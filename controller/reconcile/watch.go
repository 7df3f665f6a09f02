package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/informer"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// watch makes the loop's cluster the informers' stores and starts them. It
// returns a wait for the first complete picture. They end with the context.
func (l *Loop) watch(ctx context.Context) (wait func() error, err error) {
	l.source = newSource(l.client, &l.cluster, l.log)
	var synced []cache.InformerSynced
	for _, i := range l.informers {
		reg, err := l.handle(i)
		if err != nil {
			return nil, err
		}
		synced = append(synced, reg.HasSynced)
	}
	if _, err := l.handle(l.serviceCIDRs); err != nil {
		return nil, err
	}
	for _, i := range l.informers {
		go i.RunWithContext(ctx)
	}
	return func() error {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			return ctx.Err()
		}
		return nil
	}, nil
}

// handle makes the loop process the informer's changes.
func (l *Loop) handle(i *informer.Informer) (cache.ResourceEventHandlerRegistration, error) {
	reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.changed(nil, obj) },
		UpdateFunc: func(old, obj any) { l.changed(old, obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			l.changed(obj, nil)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch cluster: %w", err)
	}
	return reg, nil
}

// NewCluster returns a cluster of these objects.
func NewCluster(cfg plan.Config, objects ...runtime.Object) (*plan.Cluster, error) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, serviceIndexers())
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, podIndexers())
	endpoints := cache.NewIndexer(cache.MetaNamespaceKeyFunc, sliceIndexers())
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	policies := cache.NewIndexer(cache.MetaNamespaceKeyFunc, policyIndexers())
	serviceCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, obj := range objects {
		var err error
		switch obj := obj.(type) {
		case *corev1.Node:
			err = nodes.Add(obj)
		case *corev1.Pod:
			err = pods.Add(obj)
		case *corev1.Service:
			err = services.Add(obj)
		case *discoveryv1.EndpointSlice:
			err = endpoints.Add(obj)
		case *corev1.Namespace:
			err = namespaces.Add(obj)
		case *networkingv1.NetworkPolicy:
			err = policies.Add(obj)
		case *networkingv1.ServiceCIDR:
			err = serviceCIDRs.Add(obj)
		default:
			err = fmt.Errorf("no plan reads a %T", obj)
		}
		if err != nil {
			return nil, err
		}
	}
	return &plan.Cluster{
		Config: cfg, Nodes: nodes, Pods: pods, Services: services, EndpointSlices: endpoints,
		Namespaces: namespaces, Policies: policies, ServiceCIDRs: serviceCIDRs,
	}, nil
}

func (l *Loop) changed(old, now any) {
	if !l.taking() {
		return // before whom it affects is found out, which on standby is for nothing
	}
	for _, k := range Affected(&l.cluster, old, now) {
		l.enqueue(k)
	}
}

// strip keeps of objects what plans and allocation read: the stores hold the
// whole cluster.
func strip(obj any) (any, error) {
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		meta := m.GetObjectMeta()
		meta.SetManagedFields(nil)
		meta.SetOwnerReferences(nil)
		meta.SetFinalizers(nil)
		meta.SetAnnotations(stripAnnotations(meta.GetAnnotations()))
	}
	switch obj := obj.(type) {
	case *corev1.Pod:
		obj.Spec = corev1.PodSpec{NodeName: obj.Spec.NodeName, HostNetwork: obj.Spec.HostNetwork, Containers: append(services.HostPortContainers(obj), plan.NamedPorts(obj)...)}
		obj.Status = corev1.PodStatus{Phase: obj.Status.Phase, PodIPs: obj.Status.PodIPs}
	case *corev1.Node:
		obj.Spec = corev1.NodeSpec{}
		obj.Status = corev1.NodeStatus{Addresses: obj.Status.Addresses}
	}
	return obj, nil
}

// stripAnnotations keeps what somebody in OVN's or this project's name may have
// written, and requests for addresses.
func stripAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for name, value := range all {
		prefix, _, _ := strings.Cut(name, "/")
		if prefix == "k8s.ovn.org" || prefix == "ovn-ebpf.io" || name == annotation.DefaultNetwork || name == annotation.FirstPod {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}

// probe asks the API server for its version, so that readiness can say that
// it does not answer: informers retry without telling.
func (l *Loop) probe(ctx context.Context) error {
	const interval, timeout = 5 * time.Second, 5 * time.Second
	for {
		once, cancel := context.WithTimeout(ctx, timeout)
		err := l.client.Discovery().RESTClient().Get().AbsPath("/version").Do(once).Error()
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if l.status.setAPI(err) {
			if err != nil {
				l.log.Warn("API server does not answer", "err", err)
			} else {
				l.log.Info("API server answers")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}
