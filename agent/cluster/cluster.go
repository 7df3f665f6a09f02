package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// Handlers are called after a change, from the informers' goroutines. They must not block. Nil
// handlers are skipped.
type Handlers struct {
	Node    func()            // the agent's own Node has changed
	Peers   func()            // the result of Peers or ChassisTaken has changed
	Service func(service.Key) // the result of Objects has changed for this key
	Synced  func()            // once, when all lists are complete

	Readdressed func() // the controller's annotation of a pod on the node has changed
	APIServers  func() // the result of APIServers may have changed
	Pool        func() // the result of Pool has changed
}

// watchRetryMax bounds the wait before a watch is repeated. After an outage of the API server, the
// agents of many nodes return at once.
const watchRetryMax = 5 * time.Second

// writeWait bounds a write. A repeated write may have newer content.
const writeWait = 10 * time.Second

// Cluster holds the informers. It is safe for concurrent use. In underlay mode, it knows the
// agent's own Node only, and no Services and slices.
type Cluster struct {
	node     string
	trust    annotation.Trust
	client   kubernetes.Interface
	dialer   *dialer
	log      *slog.Logger
	handlers Handlers
	nodes    *informer.Informer // all nodes
	pods     *informer.Informer // pods of the node
	services *informer.Informer // nil in underlay mode
	slices   *informer.Informer // nil in underlay mode
	pools    *informer.Informer // the node's ConfigMap with its pool of ports; nil in overlay mode

	mu      sync.Mutex                                    // guards waiters
	waiters map[types.NamespacedName]map[loop.Signal]bool // triggered by changes of a pod, by its name
}

// New builds the informers of overlay mode; Run starts them.
func New(
	config *rest.Config,
	node string,
	trust annotation.Trust,
	h Handlers,
	log *slog.Logger,
) (*Cluster, error) {
	c, err := newCluster(config, node, h, log)
	if err != nil {
		return nil, err
	}

	c.trust = trust

	slices := c.options("endpoint slices", &discoveryv1.EndpointSlice{})
	slices.Select = func(o *metav1.ListOptions) { o.LabelSelector = servedSlices }
	slices.Indexers = cache.Indexers{byService: indexByService}
	c.nodes = informer.New(c.client.CoreV1().Nodes(), c.options("nodes", &corev1.Node{}))
	c.services = informer.New(c.client.CoreV1().Services(""), c.options("services", &corev1.Service{}))
	c.slices = informer.New(c.client.DiscoveryV1().EndpointSlices(""), slices)

	return c, c.watch()
}

// NewUnderlay builds the informers of underlay mode; Run starts them.
func NewUnderlay(config *rest.Config, node string, h Handlers, log *slog.Logger) (*Cluster, error) {
	c, err := newCluster(config, node, h, log)
	if err != nil {
		return nil, err
	}

	nodes, pools := c.options("the node", &corev1.Node{}), c.options("the node's pool", &corev1.ConfigMap{})
	nodes.Select = func(o *metav1.ListOptions) { o.FieldSelector = named(node) }
	pools.Select = func(o *metav1.ListOptions) { o.FieldSelector = named(annotation.PoolPrefix + node) }
	c.nodes = informer.New(c.client.CoreV1().Nodes(), nodes)
	c.pools = informer.New(c.client.CoreV1().ConfigMaps(annotation.PoolNamespace), pools)

	return c, c.watch()
}

// named returns the field selector of the object with a name.
func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// newCluster builds what both modes have: the client, and the informer of the node's pods.
func newCluster(config *rest.Config, node string, h Handlers, log *slog.Logger) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	dialer := newDialer(config.Dial)
	config.Dial = dialer.DialContext
	// The initial lists may contain tens of thousands of endpoints.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build Kubernetes client: %w", err)
	}

	c := &Cluster{
		node: node, client: client, dialer: dialer, log: log, handlers: h.filled(),
		waiters: map[types.NamespacedName]map[loop.Signal]bool{},
	}
	pods := c.options("pods", &corev1.Pod{})
	pods.Select = func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	c.pods = informer.New(client.CoreV1().Pods(""), pods)

	return c, nil
}

// options returns the options of an informer without a selector.
func (c *Cluster) options(name string, example runtime.Object) informer.Options {
	return informer.Options{
		Name: name, Example: example, Transform: newTrimmer(c.node).trim, RetryMax: watchRetryMax, Log: c.log,
	}
}

// informers returns the informers of the mode.
func (c *Cluster) informers() []*informer.Informer {
	all := []*informer.Informer{c.nodes, c.pods, c.services, c.slices, c.pools}
	return slices.DeleteFunc(all, func(i *informer.Informer) bool { return i == nil })
}

// Run fills and follows the informers until ctx ends. It retries forever while the API server is
// unreachable.
func (c *Cluster) Run(ctx context.Context) error {
	var (
		running sync.WaitGroup
		synced  []cache.InformerSynced
	)

	for _, i := range c.informers() {
		running.Go(func() { i.RunWithContext(ctx) })

		synced = append(synced, i.HasSynced)
	}

	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		c.handlers.Synced()
	}

	running.Wait()

	return nil
}

// Missing returns a message about an informer that has not been filled yet, or "".
func (c *Cluster) Missing() string {
	for _, i := range c.informers() {
		if !i.HasSynced() {
			return "Kubernetes API: the list of " + i.Name + " has not been read yet"
		}
	}

	return ""
}

// synced reports whether all informers have been filled.
func (c *Cluster) synced() bool { return c.Missing() == "" }

// Behind returns the reason why a copy may be older than the API server's objects, or nil. A copy
// that has not been filled yet is left to Missing.
func (c *Cluster) Behind() error {
	for _, i := range c.informers() {
		if err := i.Behind(); err != nil && i.HasSynced() {
			return err
		}
	}

	return nil
}

// Node returns the agent's own Node, or nil while there is none. Only its labels, annotations,
// taints and addresses are kept.
func (c *Cluster) Node() *corev1.Node {
	n, _ := getObject[corev1.Node](c.nodes.GetStore(), c.node)
	return n
}

// Pool returns the data of the ConfigMap with the node's pool of ports, or false while there is
// none.
func (c *Cluster) Pool() (data map[string]string, ok bool) {
	key := annotation.PoolNamespace + "/" + annotation.PoolPrefix + c.node

	m, ok := getObject[corev1.ConfigMap](c.pools.GetStore(), key)
	if !ok {
		return nil, false
	}

	return m.Data, true
}

// Annotate merges annotations into the Node.
func (c *Cluster) Annotate(ctx context.Context, annotations map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()

	patch := annotation.Patch(metav1.ObjectMeta{}, annotations)

	_, err := c.client.CoreV1().Nodes().Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", c.node, err)
	}

	return nil
}

// addWaiter makes changes of the pod, and of the agent's own Node, trigger wake until remove is
// called.
func (c *Cluster) addWaiter(pod types.NamespacedName, wake loop.Signal) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.waiters[pod] == nil {
		c.waiters[pod] = map[loop.Signal]bool{}
	}

	c.waiters[pod][wake] = true

	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		delete(c.waiters[pod], wake)

		if len(c.waiters[pod]) == 0 {
			delete(c.waiters, pod)
		}
	}
}

// wakeAll wakes all goroutines that wait for a pod.
func (c *Cluster) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, waiters := range c.waiters {
		for wake := range waiters {
			wake.Trigger()
		}
	}
}

// wakeWaiters wakes the goroutines that wait for this pod.
func (c *Cluster) wakeWaiters(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for wake := range c.waiters[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] {
		wake.Trigger()
	}
}

// getObject returns the object with a key of the form namespace/name, or name, from an informer's
// store. It returns false if there is none.
func getObject[T any](store cache.Store, key string) (*T, bool) {
	o, ok, err := store.GetByKey(key)
	if err != nil || !ok {
		return nil, false
	}

	t, ok := o.(*T)

	return t, ok
}
