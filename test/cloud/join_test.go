package cloud_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint/endpointtest"
	testkube "github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// kube is an API server with the namespace of the pools. The test plays agents and kubelets.
type kube struct {
	*project
	server *testkube.Server
	config *rest.Config
	client kubernetes.Interface
	nodes  int
}

func newKube(p *project) *kube {
	p.t.Helper()
	server := kubetest.Start(p.t)
	k := &kube{project: p, server: server, config: server.RestConfig()}
	k.client = kubernetes.NewForConfigOrDie(k.config)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolNamespace}}
	if _, err := k.client.CoreV1().Namespaces().Create(p.ctx, namespace, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}

	return k
}

// node makes a VM, and returns its Node, which does not exist yet.
func (k *kube) node(length int) *corev1.Node {
	k.t.Helper()
	k.nodes++
	n := k.vm(fmt.Sprint("10.0.0.", 100+k.nodes))
	n.Name = fmt.Sprint("node", k.nodes)
	n.Annotations[annotation.UnderlayPrefixLength] = strconv.Itoa(length)

	return n
}

// join creates a Node.
func (k *kube) join(n *corev1.Node) {
	k.t.Helper()

	made, err := k.client.CoreV1().Nodes().Create(k.ctx, n, metav1.CreateOptions{})
	if err != nil {
		k.t.Fatal(err)
	}

	made.Status = n.Status
	if _, err := k.client.CoreV1().Nodes().UpdateStatus(k.ctx, made, metav1.UpdateOptions{}); err != nil {
		k.t.Fatal(err)
	}
}

// version returns the resourceVersion of the ConfigMap with the pool of a node.
func (k *kube) version(n *corev1.Node) string {
	k.t.Helper()
	maps := k.client.CoreV1().ConfigMaps(annotation.PoolNamespace)

	m, err := maps.Get(k.ctx, annotation.PoolPrefix+n.Name, metav1.GetOptions{})
	if err != nil {
		k.t.Fatal(err)
	}

	return m.ResourceVersion
}

// history is what nodes were told, in order.
type history struct {
	mu    sync.Mutex // guards all
	ports []published
}

type published struct {
	node  string
	ports int // -1: the ConfigMap was deleted
	at    time.Time
}

// watch records the ConfigMaps until the test ends.
func (k *kube) watch() *history {
	k.t.Helper()

	h := &history{}

	watch, err := k.client.CoreV1().ConfigMaps(annotation.PoolNamespace).Watch(k.ctx, metav1.ListOptions{})
	if err != nil {
		k.t.Fatal(err)
	}

	k.t.Cleanup(watch.Stop)
	go func() {
		for e := range watch.ResultChan() {
			m, is := e.Object.(*corev1.ConfigMap)
			if !is || !strings.HasPrefix(m.Name, annotation.PoolPrefix) {
				continue
			}

			node := strings.TrimPrefix(m.Name, annotation.PoolPrefix)

			p := published{node, strings.Count(m.Data[annotation.PoolPorts], "\n"), time.Now()}
			if e.Type == "DELETED" {
				p.ports = -1
			}

			h.mu.Lock()
			h.ports = append(h.ports, p)
			h.mu.Unlock()
		}
	}()

	return h
}

// await waits until the node is told of so many ports, and returns the time of that.
func (h *history) await(t *testing.T, n *corev1.Node, ports int) time.Time {
	t.Helper()

	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if i := h.first(n, func(p int) bool { return p == ports }); i >= 0 {
			return h.ports[i].at
		}
	}

	t.Fatalf("%s: not %d ports within two minutes: %v", n.Name, ports, h.ports)

	return time.Time{}
}

// first returns the index of the first entry of the node that matches, or -1.
func (h *history) first(n *corev1.Node, match func(ports int) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()

	return slices.IndexFunc(h.ports, func(p published) bool { return p.node == n.Name && match(p.ports) })
}

// controller is a controller with the default settings.
type controller struct {
	*kube
	address string
	stop    func()
}

func (k *kube) controller(identity string) *controller {
	k.t.Helper()
	return k.controllerWith(identity, func(*underlay.Config) {})
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	return l.Addr().String()
}

// controllerWith starts a controller whose settings change has changed.
func (k *kube) controllerWith(identity string, change func(*underlay.Config)) *controller {
	k.t.Helper()
	address, pools := freeAddress(k.t), k.project.config
	cfg := underlay.Config{
		RestConfig: k.config, Cloud: "k8s", CloudsFile: lab.CloudsFile, Cluster: pools.Cluster,
		Router: pools.Router, SubnetPool: pools.SubnetPool, SubnetPool6: pools.SubnetPool6, Groups: pools.Groups,
		RequestRate: 4, Workers: 2,
		Election: election.Config{Identity: identity, Namespace: "kube-system"}, MetricsAddr: address,
	}
	change(&cfg)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)

	log := slog.New(slog.NewTextHandler(k.t.Output(), nil)).With("replica", identity)
	go func() { ended <- underlay.Run(ctx, cfg, log) }()

	c := &controller{kube: k, address: address}
	c.stop = sync.OnceFunc(func() {
		cancel()

		if err := <-ended; err != nil {
			k.t.Error(err)
		}
	})
	k.t.Cleanup(c.stop)

	return c
}

func (c *controller) get(path string) string {
	_, body, err := endpointtest.Get(c.address, path)
	if err != nil {
		return err.Error()
	}

	return body
}

var request = regexp.MustCompile(`(?m)^ovnkube_openstack_requests_total\{call="([^"]*)",kind="([^"]*)"\} (\d+)$`)

// requests returns the requests to Neutron so far, by call.
func (c *controller) requests() map[string]int {
	c.t.Helper()
	body := c.get("/metrics")
	out := map[string]int{}

	for _, m := range request.FindAllStringSubmatch(body, -1) {
		n, err := strconv.Atoi(m[3])
		if err != nil {
			c.t.Fatal(err)
		}

		out[m[1]] += n
		if m[2] != "ok" {
			c.t.Errorf("%d requests to %s: %s", n, m[1], m[2])
		}
	}

	return out
}

// await waits until a page contains the text.
func (c *controller) await(path, text string) {
	c.t.Helper()

	body := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if body = c.get(path); strings.Contains(body, text) {
			return
		}
	}

	c.t.Fatalf("%s has no %q within a minute:\n%s", path, text, body)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}

	return n
}

// TestJoin: with the default settings, a node soon has its first ports, and 61 ports with few
// requests. A controller that takes over writes nothing. If two nodes join at once, both have a
// batch of ports before either has two.
func TestJoin(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	h := k.watch()
	one := k.controller("one")
	one.await("/readyz", "ok")

	const mostRequests, mostWait = 28, 8 * time.Second

	first := k.node(26)
	before, began := sum(one.requests()), time.Now()

	k.join(first)
	eight, all := h.await(t, first, 8).Sub(began), h.await(t, first, 61).Sub(began)
	one.await("/metrics", "\n"+`ovnkube_controller_pools{state="ok"} 1`)
	requests := one.requests()
	t.Logf("8 ports after %.1f s, 61 after %.1f s, with %d requests: %v",
		eight.Seconds(), all.Seconds(), sum(requests)-before, requests)

	if n := sum(requests) - before; n > mostRequests {
		t.Errorf("%d requests, want at most %d", n, mostRequests)
	}

	if eight > mostWait {
		t.Errorf("the first ports after %s, want at most %s", eight, mostWait)
	}

	one.stop()

	version := k.version(first)
	two := k.controller("two")
	two.await("/metrics", "\n"+`ovnkube_openstack_requests_total{call="list trunks",kind="ok"}`)
	two.await("/metrics", "\n"+`ovnkube_controller_pools{state="ok"} 1`)
	two.await("/metrics", "\n"+`ovnkube_controller_pool_ports{node="node1",state="usable"} 61`)

	for call, n := range two.requests() {
		if !strings.HasPrefix(call, "list ") && call != "get quotas" {
			t.Errorf("a takeover makes %d requests to %s", n, call)
		}
	}

	if now := k.version(first); now != version {
		t.Errorf("resourceVersion %s after a takeover, was %s", now, version)
	}

	second, third := k.node(28), k.node(28)
	k.join(second)
	k.join(third)
	h.await(t, second, 13)
	h.await(t, third, 13)

	batch, more := func(ports int) bool { return ports >= 8 }, func(ports int) bool { return ports > 8 }
	for _, pair := range [][2]*corev1.Node{{second, third}, {third, second}} {
		if h.first(pair[0], batch) > h.first(pair[1], more) {
			t.Errorf("%s has more than 8 ports before %s has 8: %v", pair[1].Name, pair[0].Name, h.ports)
		}
	}

	for _, n := range []*corev1.Node{first, second, third} {
		k.deleteNode(h, n)
	}

	two.stop()
	k.checkNothingLeft()
}
