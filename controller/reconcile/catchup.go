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
	pageSize    = 1000                  // objects in one reply of the API server
	catchUpPoll = 20 * time.Millisecond // between two looks into the informer's store
	relistEvery = 2 * time.Second       // because objects may have been deleted since they were listed
)

// listAll lists the resource from the API server, stripped. An object whose version the store
// already has is the store's own, so the cluster is not in memory twice.
func (r resource) listAll(ctx context.Context) ([]metav1.Object, error) {
	var out []metav1.Object

	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.list(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.name, err)
		}

		err = meta.EachListItem(page, func(obj runtime.Object) error {
			if o, ok := obj.(metav1.Object); ok {
				stored := r.stored(o)
				if stored != nil && resourceVersion(stored) == resourceVersion(o) && stored.GetUID() == o.GetUID() {
					out = append(out, stored)
					return nil
				}
			}

			stripped, err := strip(obj)
			if o, ok := stripped.(metav1.Object); ok {
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

// catchUp waits until the store has seen all objects that were listed. If this leader planned
// from an older state than the last leader, it would remove rows that the last leader has
// written. catchUp returns an error only when the context ends.
func (r resource) catchUp(ctx context.Context, listed []metav1.Object, log *slog.Logger) error {
	missing := r.notYetStored(listed)
	listedAt := time.Now()

	for len(missing) > 0 {
		if !loop.Pause(ctx, catchUpPoll) {
			return ctx.Err()
		}

		if time.Since(listedAt) > relistEvery {
			log.Warn("watch is behind the API server", "resource", r.name, "objects", len(missing))

			if now, err := r.listAll(ctx); err == nil { // do not wait for objects that were deleted meanwhile
				missing = keepExisting(missing, now)
			}

			listedAt = time.Now()
		}

		missing = r.notYetStored(missing)
	}

	return nil
}

// notYetStored returns the objects that the store lacks or has in an older version.
func (r resource) notYetStored(objects []metav1.Object) []metav1.Object {
	var out []metav1.Object

	for _, o := range objects {
		if stored := r.stored(o); stored == nil || resourceVersion(stored) < resourceVersion(o) {
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
	object, _ := obj.(metav1.Object)

	return object
}

// resourceVersion returns the object's resource version, comparable within a resource.
func resourceVersion(o metav1.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // Kubernetes 1.35: always a decimal number
	return v
}

// keepExisting removes the objects that are not in now. It modifies the slice objects.
func keepExisting(objects, now []metav1.Object) []metav1.Object {
	uids := map[types.UID]bool{}
	for _, o := range now {
		uids[o.GetUID()] = true
	}

	return slices.DeleteFunc(objects, func(o metav1.Object) bool { return !uids[o.GetUID()] })
}
