package underlay

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud/cloudtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint/endpointtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// lease is the duration of the tests' lease.
const lease = 6 * time.Second

const (
	project = "project"
	router  = "0a0a0a0a-0000-4000-8000-000000000001"
	pool4   = "0a0a0a0a-0000-4000-8000-000000000002"
	group   = "0a0a0a0a-0000-4000-8000-000000000003"
)

// rig is a real API server, and the stand-in of Neutron. The test plays agents and kubelets.
type rig struct {
	t       *testing.T
	config  *rest.Config
	client  kubernetes.Interface
	neutron *recorder
}

// recorder records the steps that Neutron executes.
type recorder struct {
	*cloudtest.Neutron
	mu     sync.Mutex // guards the fields below
	steps  []string
	before func(ctx context.Context, step cloud.Step) // called before each step; may be nil
	refuse func(step cloud.Step) error                // the answer to a step; may be nil
}

// Do implements Neutron.
func (r *recorder) Do(ctx context.Context, step cloud.Step) (cloud.Result, error) {
	r.mu.Lock()
	r.steps = append(r.steps, step.String())
	before, refuse := r.before, r.refuse
	r.mu.Unlock()

	if before != nil {
		before(ctx, step)
	}

	if refuse != nil {
		if err := refuse(step); err != nil {
			return cloud.Result{}, err
		}
	}

	return r.Neutron.Do(ctx, step)
}

// count returns the number of steps so far.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return len(r.steps)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	config := kubetest.Start(t).RestConfig()
	r := &rig{t: t, config: config, client: kubernetes.NewForConfigOrDie(config)}

	var vifs []cloud.Port

	for n := byte(1); n <= 3; n++ {
		v := vif(n)
		vifs = append(vifs, cloud.Port{
			ID: v.ID, Project: project, MAC: v.MAC.String(), Device: fmt.Sprint("server", n),
			FixedIPs: []cloud.FixedIP{{Subnet: "vms", Address: v.Address}},
		})
	}

	r.neutron = &recorder{Neutron: cloudtest.New(vifs...)}
	r.neutron.ID = cloudtest.UUID

	return r
}

// vif returns what the agent of the n-th VM announces.
func vif(n byte) annotation.VIF {
	return annotation.VIF{
		ID:  fmt.Sprintf("0b0b0b0b-0000-4000-8000-%012x", n),
		MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 1, 0, n}, Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), MTU: 1442,
	}
}

func (r *rig) createNamespace() {
	r.t.Helper()

	_, err := r.client.CoreV1().Namespaces().Create(r.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolNamespace}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}

// createNode creates the Node of the n-th VM, with the address as its InternalIP.
func (r *rig) createNode(n byte, address string) {
	r.t.Helper()
	r.create(r.newNode(nodeName(n), vif(n), address))
}

// newNode returns a Node whose agent announces the VIF, with the address as its InternalIP.
func (r *rig) newNode(name string, v annotation.VIF, address string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				annotation.Underlay: annotation.FormatUnderlay(v), annotation.UnderlayPrefixLength: "28",
			},
		},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func (r *rig) create(n *corev1.Node) {
	r.t.Helper()

	node, err := r.client.CoreV1().Nodes().Create(r.t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	node.Status = n.Status
	if _, err := r.client.CoreV1().Nodes().UpdateStatus(r.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// join creates the Node of the n-th VM.
func (r *rig) join(n byte) {
	r.t.Helper()
	r.createNode(n, vif(n).Address.String())
}

func nodeName(n byte) string { return fmt.Sprint("node", n) }

func (r *rig) deleteNode(n byte) {
	r.t.Helper()

	if err := r.client.CoreV1().Nodes().Delete(r.t.Context(), nodeName(n), metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) createPod(name string, n byte, change func(*corev1.Pod)) {
	r.t.Helper()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: nodeName(n), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	change(pod)

	made, err := r.client.CoreV1().Pods("default").Create(r.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	made.Status = pod.Status
	if _, err := r.client.CoreV1().Pods("default").UpdateStatus(r.t.Context(), made, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// configMap returns the ConfigMap of the n-th VM, or nil.
func (r *rig) configMap(n byte) *corev1.ConfigMap {
	m, err := r.client.CoreV1().ConfigMaps(annotation.PoolNamespace).Get(
		context.Background(), annotation.PoolPrefix+nodeName(n), metav1.GetOptions{})
	if err != nil {
		return nil
	}

	return m
}

// ports returns the number of ports that are published for the n-th VM; -1 without a ConfigMap.
func (r *rig) ports(n byte) int {
	m := r.configMap(n)
	if m == nil {
		return -1
	}

	record, err := parseRecord(m.Data)
	if err != nil {
		r.t.Errorf("pool of %s: %v", nodeName(n), err)
	}

	return len(record.Lines)
}

// awaitPorts waits until so many ports are published.
func (r *rig) awaitPorts(n byte, want int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s has %d ports", nodeName(n), want), func() string {
		if got := r.ports(n); got != want {
			return fmt.Sprint(got, " ports")
		}

		return ""
	})
}

// events returns the messages of Events with the reason in the namespace default, which also has
// those about Nodes.
func (r *rig) events(reason string) (messages []string) {
	r.t.Helper()

	list, err := r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	for _, e := range list.Items {
		if e.Reason == reason {
			messages = append(messages, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+": "+e.Message)
		}
	}

	return messages
}

// eventually waits until wrong returns "".
func (r *rig) eventually(what string, wrong func() string) {
	r.t.Helper()

	why := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if why = wrong(); why == "" {
			return
		}
	}

	r.t.Fatalf("%s: not within a minute: %s", what, why)
}

// replica is a running controller.
type replica struct {
	*rig
	cfg   Config
	ended chan error
	stop  func()
}

func (r *rig) configure(identity string) Config {
	return Config{
		RestConfig: r.config, Cloud: "cloud", Cluster: "k8s", Router: router, SubnetPool: pool4, Groups: []string{group},
		RequestRate: 1000, Workers: 2, ReleaseAfter: time.Second, MetricsAddr: freeAddress(r.t),
		Election: election.Config{Identity: identity, Namespace: "kube-system", Lease: lease},
		Open:     func() (Neutron, string, error) { return r.neutron, project, nil },
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	return l.Addr().String()
}

// start runs a replica until stop is called, or the test ends.
func (r *rig) start(cfg Config) *replica {
	r.t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	c := &replica{rig: r, cfg: cfg, ended: make(chan error, 1)}

	log := slog.New(slog.NewTextHandler(r.t.Output(), nil)).With("replica", cfg.Election.Identity)
	go func() { c.ended <- Run(ctx, cfg, log) }()

	c.stop = sync.OnceFunc(func() {
		cancel()

		if err := <-c.ended; err != nil {
			r.t.Errorf("%s: %v", cfg.Election.Identity, err)
		}
	})
	r.t.Cleanup(c.stop)

	return c
}

func (c *replica) get(path string) (status int, body string) {
	status, body, err := endpointtest.Get(c.cfg.MetricsAddr, path)
	if err != nil {
		return 0, err.Error()
	}

	return status, body
}

// awaitReadyz waits until /readyz has the status, and contains all texts.
func (c *replica) awaitReadyz(want int, texts ...string) {
	c.t.Helper()
	c.eventually(fmt.Sprint("readyz: ", want, texts), func() string {
		status, body := c.get("/readyz")
		for _, text := range texts {
			if !strings.Contains(body, text) {
				status = 0
			}
		}

		if status != want {
			return body
		}

		return ""
	})
}

// awaitMetric waits until /metrics has the line.
func (c *replica) awaitMetric(line string) {
	c.t.Helper()
	c.eventually("metric "+line, func() string {
		_, body := c.get("/metrics")
		if !strings.Contains(body, "\n"+line+"\n") {
			return body
		}

		return ""
	})
}
