package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile/churntest"
)

// standinAPI stands in for the API server, where a real one would be too slow:
// it keeps objects with versions and tells changes in order, resource by
// resource, as watches do. Objects that it gave away are never changed.
type standinAPI struct {
	mu      sync.Mutex // guards all below
	version int64
	objects map[string]map[string]metav1.Object // resource → key → object
	changes map[string][]standinChange          // by resource
	faults  *rand.Rand                          // nil: annotating never fails
	down    bool
}

type standinChange struct {
	key string
	now metav1.Object // nil: deleted
}

// standinResources are in the order in which a leader asks for them.
func standinResources() []plan.Resource {
	return slices.DeleteFunc(plan.Resources(), func(r plan.Resource) bool { return r.Optional })
}

// standinNames are their names.
func standinNames() []string {
	var out []string
	for _, r := range standinResources() {
		out = append(out, r.Resource)
	}

	return out
}

func newStandinAPI() *standinAPI {
	return &standinAPI{objects: map[string]map[string]metav1.Object{}, changes: map[string][]standinChange{}}
}

// Put creates or replaces an object. A new one gets a UID and a time, of which
// several have the same.
func (s *standinAPI) Put(obj metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.store(obj)
}

func (s *standinAPI) store(obj metav1.Object) {
	s.version++
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprint("uid-", s.version)))
		obj.SetCreationTimestamp(metav1.NewTime(time.Unix(1_800_000_000+s.version/8, 0)))
	}

	obj.SetResourceVersion(fmt.Sprint(s.version))

	r, key := churntest.ResourceOf(obj), churntest.Key(obj)
	if s.objects[r] == nil {
		s.objects[r] = map[string]metav1.Object{}
	}

	s.objects[r][key] = obj
	s.changes[r] = append(s.changes[r], standinChange{key, obj})
}

func (s *standinAPI) Remove(resource, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.objects[resource][key] == nil {
		return
	}

	s.version++
	delete(s.objects[resource], key)
	s.changes[resource] = append(s.changes[resource], standinChange{key, nil})
}

// All returns a resource's objects by key.
func (s *standinAPI) All(resource string) []metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []metav1.Object
	for _, k := range slices.Sorted(maps.Keys(s.objects[resource])) {
		out = append(out, s.objects[resource][k])
	}

	return out
}

func (s *standinAPI) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.down = down
}

// Edit changes a copy of an object, if it exists.
func (s *standinAPI) Edit(resource, key string, change func(metav1.Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	obj := s.objects[resource][key]
	if obj == nil {
		return
	}

	c, _ := obj.(runtime.Object).DeepCopyObject().(metav1.Object)
	change(c)
	s.store(c)
}

var errDown = errors.New("no route to API server")

// patch fails as requests do: it may have been done all the same.
func (s *standinAPI) patch(_ context.Context, k plan.Key, p *patch, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	fault := 100
	if s.faults != nil {
		fault = s.faults.IntN(100)
	}

	if s.down || fault < 3 {
		return errDown
	}

	resource, key := churntest.Nodes, k.Name
	if k.Kind == plan.KindPod {
		resource, key = churntest.Pods, k.Namespace+"/"+k.Name
	}

	obj := s.objects[resource][key]

	what := schema.GroupResource{Resource: resource}
	if obj == nil {
		return apierrors.NewNotFound(what, key)
	}

	if obj.GetUID() != p.object.UID || obj.GetResourceVersion() != version {
		return apierrors.NewConflict(what, key, errors.New("another version"))
	}

	c, _ := obj.(runtime.Object).DeepCopyObject().(metav1.Object)

	annotations := maps.Clone(c.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}

	for name, value := range p.annotations {
		if text, is := value.(string); is {
			annotations[name] = text
		} else {
			delete(annotations, name)
		}
	}

	if !maps.Equal(annotations, c.GetAnnotations()) {
		c.SetAnnotations(annotations)
		s.store(c)
	}

	if fault < 6 {
		return errDown
	}

	return nil
}

// read returns the object as it is now.
func (s *standinAPI) read(_ context.Context, k plan.Key) (metav1.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	resource, key := churntest.Nodes, k.Name
	if k.Kind == plan.KindPod {
		resource, key = churntest.Pods, k.Namespace+"/"+k.Name
	}

	if s.down {
		return nil, errDown
	}

	if obj := s.objects[resource][key]; obj != nil {
		return obj, nil
	}

	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, key)
}

func (s *standinAPI) list(resource string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.down {
		return nil, errDown
	}

	list := &metav1.List{}

	var objects []runtime.Object
	for _, obj := range s.objects[resource] {
		objects = append(objects, obj.(runtime.Object).DeepCopyObject())
	}

	return list, meta.SetList(list, objects)
}

// standinWatch is a replica's informers: stores that follow the API, late.
type standinWatch struct {
	api     *standinAPI
	stores  map[string]cache.Indexer
	seen    map[string]int // changes by resource
	changed func(old, now any)
}

func newStandinWatch(api *standinAPI, cfg plan.Config) (*standinWatch, *plan.Cluster, error) {
	c, err := NewCluster(cfg)
	if err != nil {
		return nil, nil, err
	}

	w := &standinWatch{api: api, seen: map[string]int{}, stores: map[string]cache.Indexer{}, changed: func(_, _ any) {}}
	for _, r := range standinResources() {
		w.stores[r.Resource], _ = c.Stores[r.Kind].(cache.Indexer)
	}

	return w, c, nil
}

func (w *standinWatch) resources() []resource {
	var out []resource

	for _, r := range standinResources() {
		name := r.Resource
		out = append(out, resource{kind: r.Kind, name: name, store: w.stores[name], list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return w.api.list(name)
		}})
	}

	return out
}

// behind is how many changes were not delivered.
func (w *standinWatch) behind() int {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()

	n := 0
	for r, changes := range w.api.changes {
		n += len(changes) - w.seen[r]
	}

	return n
}

// deliver tells up to n changes of a resource.
func (w *standinWatch) deliver(resource string, n int) {
	w.api.mu.Lock()
	changes := w.api.changes[resource][w.seen[resource]:]
	changes = changes[:min(n, len(changes))]
	w.api.mu.Unlock()

	w.seen[resource] += len(changes)
	for _, c := range changes {
		w.apply(resource, c.key, c.now)
	}
}

// relist makes the store what the API has now, as an informer does that has lost its watch.
func (w *standinWatch) relist(resource string) {
	w.api.mu.Lock()
	now := maps.Clone(w.api.objects[resource])
	w.seen[resource] = len(w.api.changes[resource])
	w.api.mu.Unlock()

	for _, key := range w.stores[resource].ListKeys() {
		if now[key] == nil {
			w.apply(resource, key, nil)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(now)) {
		w.apply(resource, key, now[key])
	}
}

func (w *standinWatch) apply(resource, key string, now metav1.Object) {
	store := w.stores[resource]

	old, had, _ := store.GetByKey(key)
	switch {
	case now == nil && had:
		_ = store.Delete(old) // an in-memory store returns no error
		w.changed(old, nil)
	case now != nil:
		kept, _ := strip(now.(runtime.Object).DeepCopyObject()) // it returns no error
		if had {
			_ = store.Update(kept)
			w.changed(old, kept)
		} else {
			_ = store.Add(kept)
			w.changed(nil, kept)
		}
	}
}
