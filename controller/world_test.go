package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint/endpointtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// world is a real API server and a real Northbound database.
type world struct {
	t       *testing.T
	config  *rest.Config
	client  *kubernetes.Clientset
	nb      *nbtest.Server
	subnets []controller.ClusterSubnet
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, config: kubetest.Start(t).RestConfig(), nb: nbtest.Start(t)}
	w.subnets = config("", nil).ClusterSubnets

	var err error
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
		Hosts:      annotation.TrustAll(),
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
	status, body, err := endpointtest.Get(r.address, path)
	if err != nil {
		return 0, err.Error()
	}

	return status, body
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

// holds reports whether the named row of a table has the text in a column.
func (w *world) holds(table, name, column, text string) bool {
	return strings.Contains(w.nb.Nbctl("--bare", "--columns="+column, "find", table, "name="+name), text)
}

func (w *world) awaitRows(rows ...[4]string) {
	w.t.Helper()

	for _, r := range rows {
		nbtest.Eventually(w.t, strings.Join(r[:], " "), func() bool { return w.holds(r[0], r[1], r[2], r[3]) })
	}
}
