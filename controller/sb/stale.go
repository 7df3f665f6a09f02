package sb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Reader is a database that the controller must not change. Another process, which may do so, runs
// RemoveStale instead (container chassis of ovn-ebpf-central).
type Reader struct{ *DB }

// RemoveChassis returns an error until the other process has removed the chassis.
func (r Reader) RemoveChassis(ctx context.Context, name string, _ Fence) error {
	all, err := r.ListChassis(ctx)
	if err != nil {
		return err
	}

	if _, has := all[name]; has {
		return fmt.Errorf("chassis %q is still registered: waiting for container chassis of ovn-ebpf-central to delete it",
			name)
	}

	return nil
}

// staleCheckInterval is how often RemoveStale checks the chassis if no Node is deleted. An
// ovn-controller that still runs registers its chassis again.
const staleCheckInterval = time.Minute

// RemoveStale deletes each chassis without a Node of its name: when it starts, after a Node is
// deleted, and every staleCheckInterval. All chassis must be named after their Nodes. It returns
// nil when the context ends, and retries after errors.
func RemoveStale(ctx context.Context, client kubernetes.Interface, db *DB, log *slog.Logger) error {
	nodes := informer.New(client.CoreV1().Nodes(), informer.Options{
		Name:      "nodes",
		Example:   &corev1.Node{},
		Transform: nameOnly,
		RetryMax:  timeout,
		Log:       log,
	})
	wake := loop.NewSignal()

	deleted := cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { wake.Trigger() }}
	if _, err := nodes.AddEventHandler(deleted); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}

	var running sync.WaitGroup

	running.Go(func() { nodes.RunWithContext(ctx) })
	defer running.Wait()

	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
		return nil // the context has ended
	}

	exists := func(name string) bool {
		_, has, err := nodes.GetStore().GetByKey(name)
		return has && err == nil
	}

	return loop.Run(ctx, loop.Options{
		Name:   "chassis of deleted nodes",
		Wake:   wake,
		Resync: staleCheckInterval,
		Log:    log,
		Apply:  func(ctx context.Context) error { return removeStale(ctx, client, db, exists) },
	})
}

// removeStale checks all chassis once. exists reports whether the informer has the Node. Before it
// deletes a chassis, it also asks the API server, because the informer may be behind.
func removeStale(ctx context.Context, client kubernetes.Interface, db *DB, exists func(string) bool) error {
	all, err := db.ListChassis(ctx)
	if err != nil {
		return err
	}

	var errs []error

	for name := range all {
		if exists(name) {
			continue
		}

		_, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = db.RemoveChassis(ctx, name, Fence{})
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// nameOnly drops all fields of a Node but those that an informer needs.
func nameOnly(object any) (any, error) {
	if n, ok := object.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
		}, nil
	}

	return object, nil
}
