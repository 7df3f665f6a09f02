package reconcile

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
)

// optional is a resource that an API server may lack.
type optional struct {
	*informer.Informer
	list func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// follow watches an optional resource until ctx ends. An API server that lacks it is asked again
// every few minutes, because it may be updated. Readiness does not wait for it: no row depends on
// it.
func (l *Loop) follow(ctx context.Context, o optional) {
	const soon, late = 5 * time.Second, 5 * time.Minute
	logged := ""
	for {
		_, err := o.list(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			o.RunWithContext(ctx)
			return
		}
		again, text := soon, err.Error()
		if apierrors.IsNotFound(err) {
			again, text = late, "the API server has no such resource"
		}
		if text != logged && ctx.Err() == nil {
			l.log.Warn("resource not watched", "resource", o.Name, "reason", text)
			logged = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
