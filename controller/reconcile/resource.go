package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// watchRetryMax bounds the backoff of watches. It is short, because one controller is hardly any
// load for the API server, and all nodes wait for it.
const watchRetryMax = 2 * time.Second

// NewClient returns a client of the API server for the objects of all kinds.
func NewClient(config *rest.Config) (rest.Interface, error) {
	scheme := plan.NewScheme()
	config = rest.CopyConfig(config)
	codecs := rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme))
	config.NegotiatedSerializer = codecs.WithoutConversion()

	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create API client: %w", err)
	}

	return client, nil
}

// objects reads and writes the API server's objects of one resource, by HTTP requests. It
// implements informer.Client.
type objects struct {
	client rest.Interface
	plan.Resource
}

// List returns the objects in all namespaces.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return o.requestAll(o.client.Get(), options).Do(ctx).Get()
}

// Watch watches the objects in all namespaces.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return o.requestAll(o.client.Get(), options).Watch(ctx)
}

// requestAll makes r a request for the objects in all namespaces. The API server ends a watch after
// TimeoutSeconds, and so does the request.
func (o objects) requestAll(r *rest.Request, options metav1.ListOptions) *rest.Request {
	r = r.AbsPath(o.path()...).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	if options.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*options.TimeoutSeconds) * time.Second)
	}

	return r
}

// read returns one object as it is now.
func (o objects) read(ctx context.Context, k plan.Key) (metav1.Object, error) {
	obj, err := o.client.Get().AbsPath(o.pathOf(k)...).Do(ctx).Get()
	if err != nil {
		return nil, err
	}

	m, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", obj)
	}

	return m, nil
}

// patch writes a merge patch to one object.
func (o objects) patch(ctx context.Context, k plan.Key, body []byte) error {
	return o.client.Patch(types.MergePatchType).AbsPath(o.pathOf(k)...).Body(body).Do(ctx).Error()
}

// patchStatus writes a strategic merge patch to the status of one object.
func (o objects) patchStatus(ctx context.Context, k plan.Key, body []byte) error {
	return o.client.Patch(types.StrategicMergePatchType).
		AbsPath(append(o.pathOf(k), "status")...).
		Body(body).
		Do(ctx).
		Error()
}

// path returns the elements of the URL path of all objects, such as apis, apps, v1, deployments.
func (o objects) path() []string {
	if o.Group == "" {
		return []string{"api", o.Version, o.Resource.Resource}
	}

	return []string{"apis", o.Group, o.Version, o.Resource.Resource}
}

// pathOf returns the elements of the URL path of one object.
func (o objects) pathOf(k plan.Key) []string {
	p := o.path()
	if !o.Namespaced {
		return append(p, k.Name)
	}

	return append(p[:len(p)-1], "namespaces", k.Namespace, p[len(p)-1], k.Name)
}

// resource is a kind of objects that plans read. store is the informer's, and may be behind the API
// server. list asks the API server.
type resource struct {
	kind  plan.Kind
	name  string // plural, as in URLs
	store plan.Store
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// newSource makes an informer for each resource, and sets c.Stores to the stores of these
// informers. The informers do not run yet.
func newSource(client rest.Interface, c *plan.Cluster, log *slog.Logger) source {
	s := source{patcher: newPatcher(client)}
	c.Stores = map[plan.Kind]plan.Store{}

	for _, r := range plan.Resources() {
		api, name := objects{client: client, Resource: r}, r.Resource
		i := informer.New(api, informer.Options{
			Name:      name,
			Example:   r.Object,
			Transform: strip,
			Indexers:  indexers(r),
			RetryMax:  watchRetryMax,
			Log:       log,
		})

		c.Stores[r.Kind] = i.GetIndexer()
		if r.Optional {
			s.optional = append(s.optional, optional{i, api.List})
			continue
		}

		s.resources = append(s.resources, resource{r.Kind, name, i.GetIndexer(), api.List})
		s.informers = append(s.informers, i)
	}

	return s
}

// indexers returns the indexes that plans use in the store of a resource.
func indexers(r plan.Resource) cache.Indexers {
	out := cache.Indexers{}
	for name, f := range r.Indexes {
		out[name] = f
	}

	return out
}

// NewCluster returns a cluster of these objects, without informers, for tests and tools.
func NewCluster(cfg plan.Config, objects ...runtime.Object) (*plan.Cluster, error) {
	c := &plan.Cluster{Config: cfg, Stores: map[plan.Kind]plan.Store{}}
	stores := map[plan.Kind]cache.Indexer{}

	for _, r := range plan.Resources() {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(r))
		c.Stores[r.Kind], stores[r.Kind] = store, store
	}

	for _, obj := range objects {
		store := stores[plan.KindOf(obj)]
		if store == nil {
			return nil, fmt.Errorf("no plan reads a %T", obj)
		}

		if err := store.Add(obj); err != nil {
			return nil, err
		}
	}

	return c, nil
}

// optional is a resource that an API server may lack. Its informer runs once the resource was found
// (Loop.follow).
type optional struct {
	*informer.Informer
	list func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// follow watches an optional resource until ctx ends. If the API server lacks the resource, follow
// asks again every few minutes, because the server may be updated. Readiness does not wait for the
// resource, because no row depends on it.
func (l *Loop) follow(ctx context.Context, o optional) {
	const errorRetry, missingRetry = 5 * time.Second, 5 * time.Minute

	logged := ""

	for {
		_, err := o.list(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			o.RunWithContext(ctx)
			return
		}

		retry, text := errorRetry, err.Error()
		if apierrors.IsNotFound(err) {
			retry, text = missingRetry, "the API server has no such resource"
		}

		if text != logged && ctx.Err() == nil {
			l.log.Warn("resource not watched", "resource", o.Name, "reason", text)
			logged = text
		}

		if !loop.Pause(ctx, retry) {
			return
		}
	}
}
