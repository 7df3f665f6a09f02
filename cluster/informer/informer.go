// Package informer keeps copies of the API server's objects, by client-go's informers. It adds
// three properties to them. An Informer reports whether its copy is up to date. It watches again
// soon after an outage of the API server, where a reflector alone waits for up to a minute. And it
// lists the objects again after a restore of the API server's database, where a reflector alone
// would wait for events that the API server never sends.
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

	s := &stream{
		name: o.Name, retryMax: o.RetryMax, log: o.Log,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			o.Select(&options)
			return client.List(ctx, options)
		},
		open: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			o.Select(&options)
			return client.Watch(ctx, options)
		},
	}
	inf := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: s.listAll, WatchFuncWithContext: s.watch,
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

// Behind returns nil if the copy is at most a second old, and otherwise the reason why it may be
// older. A copy is also behind if it is of a later state than the API server's, because it then
// gets no events.
func (i *Informer) Behind() error {
	if !i.HasSynced() {
		return fmt.Errorf("%s are not listed yet", i.Name)
	}

	return i.stream.behind(time.Now())
}
