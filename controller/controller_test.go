package controller_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

// world is a real API server and a real Northbound database.
type world struct {
	t      *testing.T
	config *rest.Config
	client *kubernetes.Clientset
	nb     *nbtest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cache := os.Getenv("OVN_EBPF_CACHE")
	if cache == "" {
		cache = "/var/cache/ovn-ebpf"
	}
	if testing.Short() {
		if _, err := os.Stat(filepath.Join(cache, "kube-"+kube.Version, "kube-apiserver")); err != nil {
			t.Skipf("-short, and the API server is not built yet: %v", err)
		}
	}
	binary, err := kube.Build(t.Context(), cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	server, err := kube.Start(t.Context(), kube.Options{Dir: t.TempDir(), Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	w := &world{t: t, config: server.RestConfig(), nb: nbtest.Start(t)}
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	return w
}

// replica is a running controller.
type replica struct {
	t       *testing.T
	address string
	stop    context.CancelFunc
	done    chan error
}

func config(nbAddress string, api *rest.Config) controller.Config {
	c := controller.Config{
		RestConfig: api, NBAddress: nbAddress, LeaderElect: true, LeaseNamespace: "kube-system",
		ClusterSubnets: []controller.ClusterSubnet{
			{Prefix: netip.MustParsePrefix("10.244.0.0/16"), HostLen: 24},
			{Prefix: netip.MustParsePrefix("fd00:10:244::/48"), HostLen: 64},
		},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
	}
	c.SNATPorts.First, c.SNATPorts.Last = 49152, 65535
	return c
}

// run starts a replica, which is stopped at the latest when the test ends.
func (w *world) run(t *testing.T, identity string) *replica {
	t.Helper()
	return start(t, config(w.nb.Endpoint, w.config), identity)
}

func start(t *testing.T, cfg controller.Config, identity string) *replica {
	t.Helper()
	cfg.Identity, cfg.MetricsAddr = identity, freeAddress(t)
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{t: t, address: cfg.MetricsAddr, stop: stop, done: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("replica", identity)
	go func() { r.done <- controller.Run(ctx, cfg, log) }()
	t.Cleanup(r.kill)
	return r
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *replica) kill() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	if err := <-r.done; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

func (r *replica) get(path string) (int, string) {
	resp, err := http.Get("http://" + r.address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (r *replica) waitReady() {
	r.t.Helper()
	nbtest.Eventually(r.t, "ready", func() bool {
		code, _ := r.get("/readyz")
		return code == http.StatusOK
	})
}

// metric is the value of the series whose text begins so, "" if there is none.
func (r *replica) metric(series string) string {
	_, body := r.get("/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func (w *world) createNode(i int) {
	w.t.Helper()
	name, addr := fmt.Sprintf("node%d", i), fmt.Sprintf("172.30.0.%d/24", 10+i)
	addr6 := fmt.Sprintf("fd00:172:30::%d/64", 10+i)
	addrs := []netip.Prefix{netip.MustParsePrefix(addr), netip.MustParsePrefix(addr6)}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		annotation.ChassisID: name,
		annotation.GatewayConfig: annotation.FormatGateway(annotation.Gateway{
			Mode: "shared", InterfaceID: "breth0_" + name, MAC: mac.String(), Addresses: addrs,
			NextHops: []netip.Addr{netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("fd00:172:30::200")}, NodePorts: true,
		}),
		annotation.HostCIDRs:      annotation.FormatHostCIDRs(addrs),
		annotation.ManagementMACs: annotation.FormatManagementMAC(mac),
	}}}
	if _, err := w.client.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createPod(name, node string) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := w.client.CoreV1().Pods("default").Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	now := int64(0)
	err := w.client.CoreV1().Pods("default").Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createService() {
	w.t.Helper()
	port, proto, name := int32(8080), corev1.ProtocolTCP, "http"
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.80",
			Ports: []corev1.ServicePort{{Name: name, Port: 80, NodePort: 30080}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.3"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &port}},
	}
	if _, err := w.client.CoreV1().Services("default").Create(w.t.Context(), svc, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.DiscoveryV1().EndpointSlices("default").Create(w.t.Context(), slice, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// holds says whether the named row of a table has the text in a column.
func (w *world) holds(table, name, column, text string) bool {
	return strings.Contains(w.nb.Nbctl("--bare", "--columns="+column, "find", table, "name="+name), text)
}

func (w *world) awaitRows(rows ...[4]string) {
	w.t.Helper()
	for _, r := range rows {
		nbtest.Eventually(w.t, strings.Join(r[:], " "), func() bool { return w.holds(r[0], r[1], r[2], r[3]) })
	}
}

func TestController(t *testing.T) {
	w := newWorld(t)

	r := w.run(t, "first")
	r.waitReady()
	w.createNode(1)
	w.createNode(2)
	w.createPod("a", "node1")
	w.createService()
	t.Log("objects become rows")
	w.awaitRows(
		[4]string{"logical_router", "ovn_cluster_router", "name", "ovn_cluster_router"},
		[4]string{"logical_router", "GR_node2", "options", "chassis=node2"},
		[4]string{"logical_switch_port", "k8s-node1", "addresses", "02:00:00:00:00:01 10.244."},
		[4]string{"logical_switch_port", "default_a", "addresses", "0a:58:0a:f4:"},
		[4]string{"load_balancer", "Service_default/web_TCP_cluster", "vips", "172.30.0.12:30080=10.244.0.3:8080"},
	)
	pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	network, err := annotation.ParsePod(pod.Annotations)
	if err != nil || len(network.Addresses) != 2 || len(network.Gateways) != 2 {
		t.Errorf("pod network %+v, %v, want two addresses and gateways", network, err)
	}
	if !w.holds("logical_switch_port", "default_a", "options", "iface-id-ver="+string(pod.UID)) {
		t.Error("the pod's port does not name its UID")
	}
	checkMetrics(t, r)
	r.waitReady()

	t.Log("a restart writes nothing")
	r.kill()
	before := w.nb.Dump()
	r = w.run(t, "second")
	r.waitReady()
	nbtest.Eventually(t, "the second leads", func() bool { return r.metric("ovnkube_controller_leader") == "1" })
	r.waitReady()
	if got := r.metric(`ovnkube_controller_northbound_transactions_total{result="ok"}`); got != "0" {
		t.Errorf("transactions after a restart: %s, want 0", got)
	}
	if diff := cmp.Diff(before, w.nb.Dump()); diff != "" {
		t.Errorf("restart changed the database (-before +after):\n%s", diff)
	}

	t.Log("deletion, and what went away while nobody led")
	w.deletePod("a")
	nbtest.Eventually(t, "the pod's port is gone", func() bool { return !w.holds("logical_switch_port", "default_a", "name", "a") })
	r.kill()
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r = w.run(t, "third")
	nbtest.Eventually(t, "the node's rows are gone", func() bool { return !strings.Contains(w.nb.Dump(), "node2") })
	nbtest.Eventually(t, "its node port is gone", func() bool {
		return !w.holds("load_balancer", "Service_default/web_TCP_cluster", "vips", "172.30.0.12")
	})
	r.waitReady()

	t.Log("a standby takes over and writes nothing")
	standby := w.run(t, "fourth")
	standby.waitReady()
	if got := standby.metric("ovnkube_controller_leader"); got != "0" {
		t.Errorf("standby leads: %s", got)
	}
	r.kill()
	nbtest.Eventually(t, "the standby leads", func() bool { return standby.metric("ovnkube_controller_leader") == "1" })
	standby.waitReady()
	if got := standby.metric(`ovnkube_controller_northbound_transactions_total{result="ok"}`); got != "0" {
		t.Errorf("transactions after a takeover: %s, want 0", got)
	}
	w.createPod("b", "node1")
	w.awaitRows([4]string{"logical_switch_port", "default_b", "addresses", "0a:58:0a:f4:"})

	t.Log("a database that went away and came back empty is written again")
	w.nb.Kill()
	nbtest.Eventually(t, "not ready without database", func() bool {
		code, body := standby.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, w.nb.Endpoint)
	})
	w.nb.Run()
	w.nb.Nbctl("--all", "destroy", "logical_switch", "--", "--all", "destroy", "load_balancer")
	nbtest.Eventually(t, "ready again", func() bool {
		code, _ := standby.get("/readyz")
		return code == http.StatusOK && w.holds("logical_switch_port", "default_b", "name", "default_b")
	})

	t.Log("what cannot be planned is said on the object, and heals")
	patch := []byte(`{"metadata":{"annotations":{"` + annotation.HostCIDRs + `":"nonsense"}}}`)
	if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	nbtest.Eventually(t, "an event on the node", func() bool {
		events, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=node1,reason=CannotPlan"})
		return err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, annotation.HostCIDRs)
	})
	w.createPod("c", "node1")
}

// checkMetrics: names, help and units are as Prometheus's linter wants them.
func checkMetrics(t *testing.T, r *replica) {
	t.Helper()
	_, body := r.get("/metrics")
	var own strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "ovnkube_") {
			own.WriteString(line)
		}
	}
	problems, err := promlint.New(strings.NewReader(own.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
	for _, series := range []string{
		"ovnkube_controller_leader", "ovnkube_controller_ready", "ovnkube_controller_queue_length",
		`ovnkube_controller_reconciliations_total{kind="node",result="ok"}`,
	} {
		if r.metric(series) == "" {
			t.Errorf("metric %s is not there", series)
		}
	}
}

// What cannot be reached is waited for, and readiness names it.
func TestReadinessNamesWhatIsMissing(t *testing.T) {
	nowhere := freeAddress(t)
	r := start(t, config("tcp:"+nowhere, &rest.Config{Host: "http://" + nowhere}), "lonely")
	for _, want := range []string{"northbound database tcp:" + nowhere, "API server: Get \"http://" + nowhere, "cluster not yet listed"} {
		nbtest.Eventually(t, "readiness says "+want, func() bool {
			code, body := r.get("/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(body, want)
		})
	}
	if code, _ := r.get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d, want 200: waiting is no illness", code)
	}
}
