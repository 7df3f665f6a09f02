// Package informer keeps a copy of what the API server has of a resource, by client-go's
// informers, and knows what they do not tell: whether the copy follows now. It also watches
// again soon after an API server has been away; a reflector by itself waits for up to a
// minute then.
package informer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Client is what client-go has for every resource; L is its list.
type Client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Options configure an Informer.
type Options struct {
	Name      string                    // of the resource, for logs and errors
	Example   runtime.Object            // one of it, empty
	Select    func(*metav1.ListOptions) // nil: all objects
	Transform cache.TransformFunc       // of objects before they are kept; nil: as they are
	Indexers  cache.Indexers
	RetryMax  time.Duration // the longest pause after requests that failed, twice that with jitter
	Log       *slog.Logger
}

// Informer is an informer that knows whether its copy follows the API server.
type Informer struct {
	cache.SharedIndexInformer
	Name   string // of the resource
	stream *stream
}

// New returns an informer that is not running.
func New[L runtime.Object](client Client[L], o Options) *Informer {
	if o.Select == nil {
		o.Select = func(*metav1.ListOptions) {}
	}
	s := &stream{name: o.Name, retryMax: o.RetryMax, log: o.Log, open: client.Watch}
	inf := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			o.Select(&options)
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			o.Select(&options)
			return s.watch(ctx, options)
		},
	}, o.Example, cache.SharedIndexInformerOptions{Indexers: o.Indexers})
	// Both return errors only for a running informer.
	_ = inf.SetTransform(o.Transform)
	_ = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if ctx.Err() == nil {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	return &Informer{inf, o.Name, s}
}

// Behind returns nil when the copy is at most a second old, and otherwise the reason why it may be
// older.
func (i *Informer) Behind() error {
	if !i.HasSynced() {
		return fmt.Errorf("%s are not listed yet", i.Name)
	}
	return i.stream.behind(time.Now())
}
