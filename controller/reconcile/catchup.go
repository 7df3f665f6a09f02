package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	pageSize    = 1000
	catchUpPoll = 20 * time.Millisecond
	relistEvery = 2 * time.Second
)

// all lists the resource from the API server, stripped. An object whose version the store already
// has is the store's own, so the cluster is not in memory twice.
func (r resource) all(ctx context.Context) ([]metav1.Object, error) {
	var out []metav1.Object

	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.list(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.name, err)
		}

		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if o, ok := obj.(metav1.Object); ok {
				s := r.stored(o)
				if s != nil && resourceVersion(s) == resourceVersion(o) && s.GetUID() == o.GetUID() {
					out = append(out, s)
					return nil
				}
			}

			kept, err := strip(obj)
			if o, ok := kept.(metav1.Object); ok {
				out = append(out, o)
			}

			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.name, err)
		}

		list, err := meta.ListAccessor(page)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.name, err)
		}

		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

// catchUp waits until the store has seen everything that was listed. Planning from an older state
// than the last leader's would remove rows that it has written. It returns an error only when the
// context ends.
func (r resource) catchUp(ctx context.Context, listed []metav1.Object, log *slog.Logger) error {
	missing := r.behind(listed)
	listedAt := time.Now()

	for len(missing) > 0 {
		if !loop.Pause(ctx, catchUpPoll) {
			return ctx.Err()
		}

		if time.Since(listedAt) > relistEvery {
			log.Warn("watch is behind the API server", "resource", r.name, "objects", len(missing))

			if now, err := r.all(ctx); err == nil { // what is gone by now need not be seen
				missing = still(missing, now)
			}

			listedAt = time.Now()
		}

		missing = r.behind(missing)
	}

	return nil
}

// behind returns the objects that the store lacks or has in an older version.
func (r resource) behind(objects []metav1.Object) []metav1.Object {
	var out []metav1.Object

	for _, o := range objects {
		if s := r.stored(o); s == nil || resourceVersion(s) < resourceVersion(o) {
			out = append(out, o)
		}
	}

	return out
}

// stored returns the store's object of that name, nil if it has none.
func (r resource) stored(o metav1.Object) metav1.Object {
	key := o.GetName()
	if o.GetNamespace() != "" {
		key = o.GetNamespace() + "/" + key
	}

	obj, _, _ := r.store.GetByKey(key) // an in-memory store returns no error
	s, _ := obj.(metav1.Object)

	return s
}

// version returns the object's resource version, comparable within a resource.
func resourceVersion(o metav1.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // Kubernetes 1.35: always a decimal number
	return v
}

// still returns those of the objects that exist now. It changes the slice.
func still(objects, now []metav1.Object) []metav1.Object {
	uids := map[types.UID]bool{}
	for _, o := range now {
		uids[o.GetUID()] = true
	}

	return slices.DeleteFunc(objects, func(o metav1.Object) bool { return !uids[o.GetUID()] })
}
