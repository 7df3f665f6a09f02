// Package informer keeps copies of the API server's objects with client-go's informers, and adds
// three properties to them:
//
//   - An Informer reports whether its copy is up to date.
//   - It watches again soon after an outage of the API server. A reflector alone waits for up to a
//     minute.
//   - It lists the objects again after the API server's database was restored. A reflector alone
//     waits for events that the API server never sends.
//
// A reflector of client-go lists a resource once and then watches it, and stores the objects. Each
// Informer puts a stream (stream.go) between its reflector and the API server.
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

// Client is the part of a client-go client that an Informer needs. L is the resource's list type.
type Client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Options configure an Informer.
type Options struct {
	Name      string                    // name of the resource, for logs and errors
	Example   runtime.Object            // an empty object of the resource
	Select    func(*metav1.ListOptions) // selects objects; nil: all
	Transform cache.TransformFunc       // changes objects before they are stored; nil: no change
	Indexers  cache.Indexers
	RetryMax  time.Duration // longest pause after a failed request; jitter may double it
	Log       *slog.Logger
}

// Informer is an informer of client-go that reports whether its copy is up to date. Behind may be
// called concurrently with all other methods.
type Informer struct {
	cache.SharedIndexInformer
	Name   string // name of the resource
	stream *stream
}

// New returns an Informer. The caller must run it.
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

	// Both methods return errors only while the informer runs.
	_ = inf.SetTransform(o.Transform)
	_ = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if ctx.Err() == nil {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})

	return &Informer{inf, o.Name, s}
}

// Behind returns nil if the copy is at most a second old, and otherwise the reason why it may be
// older. It also returns an error if the API server was restored to a state before the copy's,
// because the copy then gets no events.
func (i *Informer) Behind() error {
	if !i.HasSynced() {
		return fmt.Errorf("%s are not listed yet", i.Name)
	}

	return i.stream.behind(time.Now())
}
