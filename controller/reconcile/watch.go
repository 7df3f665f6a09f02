package reconcile

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// watch makes the informers' stores the loop's cluster, and starts the informers, which run until
// the context ends. waitForCluster waits until the stores have the whole cluster, except optional
// resources. It returns an error only when the context ends.
func (l *Loop) watch(ctx context.Context) (waitForCluster func() error, err error) {
	l.source = newSource(l.objects, &l.cluster, l.log)

	var synced []cache.InformerSynced

	for _, i := range l.informers {
		registration, err := l.handle(i)
		if err != nil {
			return nil, err
		}

		synced = append(synced, registration.HasSynced)
	}

	for _, o := range l.optional {
		if _, err := l.handle(o.Informer); err != nil {
			return nil, err
		}
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
	registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
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

	return registration, nil
}

// changed enqueues the keys whose rows depend on an object. old is nil for a new object, now for a
// deleted one.
func (l *Loop) changed(old, now any) {
	if !l.acceptsKeys() {
		return // on standby, skip computing the affected keys
	}

	for _, k := range plan.Affected(&l.cluster, old, now) {
		l.enqueue(k)
	}
}

// ServersChanged must be called after the result of Options.Servers has changed.
func (l *Loop) ServersChanged(was, now services.ControlPlane) {
	if !l.acceptsKeys() {
		return // a new leader begins with all keys
	}

	for _, k := range l.cluster.ControlPlaneAffects(was, now) {
		l.enqueue(k)
	}
}

// strip removes from objects what plans and allocation do not read, because the stores hold the
// whole cluster.
func strip(obj any) (any, error) {
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		meta := m.GetObjectMeta()
		meta.SetManagedFields(nil)
		meta.SetOwnerReferences(nil)
		meta.SetFinalizers(nil)
		meta.SetAnnotations(stripAnnotations(meta.GetAnnotations()))
	}

	plan.Trim(obj)

	return obj, nil
}

// stripAnnotations keeps the annotations of OVN and of this project, and requests for addresses.
func stripAnnotations(all map[string]string) map[string]string {
	var out map[string]string

	for name, value := range all {
		prefix, _, _ := strings.Cut(name, "/")
		if prefix == "k8s.ovn.org" || prefix == "ovn-ebpf.io" || name == annotation.DefaultNetwork ||
			name == annotation.FirstPod {
			if out == nil {
				out = map[string]string{}
			}

			out[name] = value
		}
	}

	return out
}
