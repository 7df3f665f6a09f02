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
)

// watchRetryMax bounds the wait before a failed watch is repeated. Changes of Services and pods
// reach the node that much later. It is not shorter, because the agents of many nodes return at
// once after an outage of the API server.
const watchRetryMax = 5 * time.Second

// writeWait bounds a write. A repeated write may have newer content.
const writeWait = 10 * time.Second

// Cluster holds the informers. It is safe for concurrent use. In underlay mode, methods about other
// Nodes return nothing, and methods about Services must not be called; in overlay mode, Pool must
// not be called. Objects that methods return are shared and must not be modified.
type Cluster struct {
	node     string           // name of the agent's own Node
	trust    annotation.Trust // in overlay mode
	client   kubernetes.Interface
	dialer   *dialer
	log      *slog.Logger
	handlers Handlers
	nodes    *informer.Informer // all nodes
	pods     *informer.Informer // pods of the node
	services *informer.Informer // nil in underlay mode
	slices   *informer.Informer // nil in underlay mode
	pools    *informer.Informer // the ConfigMap with the node's pool; nil in overlay mode

	mu      sync.Mutex                                    // guards waiters
	waiters map[types.NamespacedName]map[loop.Signal]bool // by pod: see addWaiter
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

	endpoints := c.options("endpoint slices", &discoveryv1.EndpointSlice{})
	endpoints.Select = func(o *metav1.ListOptions) { o.LabelSelector = servedSlices }
	endpoints.Indexers = cache.Indexers{byService: indexByService}
	c.nodes = informer.New(c.client.CoreV1().Nodes(), c.options("nodes", &corev1.Node{}))
	c.services = informer.New(c.client.CoreV1().Services(""), c.options("services", &corev1.Service{}))
	c.slices = informer.New(c.client.DiscoveryV1().EndpointSlices(""), endpoints)

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

// newCluster builds the parts that both modes have: the client, and the informer of the node's
// pods.
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

// options returns the options of an informer of all objects like example.
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

// Pool returns the data of the ConfigMap with the node's pool (annotation.PoolPrefix), the Neutron
// ports that its pods may have. It returns false while there is none.
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

// addWaiter makes each change of the pod, or of the agent's own Node, trigger wake until remove is
// called. WaitPod and FollowPod use it.
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

// wakeAll wakes all waiters.
func (c *Cluster) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, waiters := range c.waiters {
		for wake := range waiters {
			wake.Trigger()
		}
	}
}

// wakeWaiters wakes the waiters of this pod.
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
