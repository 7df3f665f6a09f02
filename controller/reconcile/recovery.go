package reconcile

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// recoverAllocator returns an allocator with the allocations in OVN and in annotations. Of a
// pod's addresses, those in OVN take precedence, so recoverAllocator waits for the database. It
// lists from the API server, because the informers may not have seen the last leader's writes
// yet. On return they have. It returns an error only when the context ends.
func (l *Loop) recoverAllocator(ctx context.Context) (*ipam.Allocator, error) {
	wait := retryMin

	for {
		for l.db.Ready() != nil {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-l.db.Connected():
			}
		}

		a, err := l.tryRecover(ctx)
		if err == nil {
			return a, nil
		}

		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		l.log.Warn("cannot read allocations", "error", err, "retry", wait)

		if !loop.Pause(ctx, wait) {
			return nil, ctx.Err()
		}

		wait = min(2*wait, retryMax)
	}
}

// tryRecover makes one attempt to recover the allocator.
func (l *Loop) tryRecover(ctx context.Context) (*ipam.Allocator, error) {
	lists, err := l.listAll(ctx)
	if err != nil {
		return nil, err
	}

	inOVN, err := l.db.PodPorts()
	if err != nil {
		return nil, err
	}

	var ports []ipam.Port
	for _, p := range inOVN {
		ports = append(ports, ipam.Port{
			Pod: ipam.Pod{
				Name: p.Pod.Namespace + "/" + p.Pod.Name,
				UID:  p.UID,
			},
			MAC:       p.MAC,
			Addresses: p.Addresses,
		})
	}

	a := ipam.NewAllocator(l.allocation)
	a.Recover(objectsOf[*corev1.Node](lists), objectsOf[*corev1.Pod](lists), ports)

	for i, r := range l.resources {
		if err := r.catchUp(ctx, lists[i], l.log); err != nil {
			return nil, err
		}
	}

	return a, nil
}

// objectsOf returns the objects of one type.
func objectsOf[T metav1.Object](lists [][]metav1.Object) []T {
	var out []T

	for _, list := range lists {
		for _, obj := range list {
			if t, ok := obj.(T); ok {
				out = append(out, t)
			}
		}
	}

	return out
}

// listAll lists all resources in parallel, which takes as long as listing the pods alone.
func (l *Loop) listAll(ctx context.Context) ([][]metav1.Object, error) {
	lists := make([][]metav1.Object, len(l.resources))

	group, ctx := errgroup.WithContext(ctx)
	for i, r := range l.resources {
		group.Go(func() (err error) {
			lists[i], err = r.listAll(ctx)
			return err
		})
	}

	return lists, group.Wait()
}
