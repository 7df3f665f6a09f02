package informer_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
)

// standinAPI streams lists, as the real API server does with etcd 3.5. With etcd 3.4 of Debian 12,
// the real one refuses to. standinAPI has one open watch at a time.
type standinAPI struct {
	t       *testing.T
	watches chan *watch.FakeWatcher
}

func (s *standinAPI) List(context.Context, metav1.ListOptions) (*corev1.NamespaceList, error) {
	s.t.Error("listed without a stream")
	return nil, errors.New("no list")
}

func (s *standinAPI) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents == nil || !*o.SendInitialEvents {
		return nil, errors.New("only with everything first")
	}

	w := watch.NewFakeWithChanSize(8, false)
	s.watches <- w

	return w, nil
}

// TestStreamedList checks that an informer is behind until the bookmark that ends a streamed list.
func TestStreamedList(t *testing.T) {
	api := &standinAPI{t, make(chan *watch.FakeWatcher)}

	inf := informer.New(api, informer.Options{Name: "namespaces", Example: &corev1.Namespace{}, RetryMax: time.Second, Log: slog.New(slog.DiscardHandler)})
	go inf.RunWithContext(t.Context())

	ns := func(name, version string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	w := <-api.watches
	w.Add(ns("a", "1"))
	time.Sleep(50 * time.Millisecond) // enough time for a wrong answer

	if err := inf.Behind(); err == nil {
		t.Error("not behind, with part of the list")
	}

	end := ns("", "2")
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}

	w.Action(watch.Bookmark, ns("", "1")) // without the annotation, it does not end the list
	w.Action(watch.Bookmark, end)
	await(t, "it is not behind", func() bool { return inf.Behind() == nil })

	if keys := inf.GetIndexer().ListKeys(); len(keys) != 1 || keys[0] != "a" {
		t.Errorf("namespaces %v", keys)
	}

	w.Modify(ns("a", "3"))
	await(t, "a change comes", func() bool {
		o, _, _ := inf.GetIndexer().GetByKey("a")
		return o.(*corev1.Namespace).ResourceVersion == "3"
	})
	w.Stop()
	await(t, "it is behind without a watch", func() bool { return inf.Behind() != nil })
}
