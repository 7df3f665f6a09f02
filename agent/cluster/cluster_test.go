package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// seen collects the calls of handlers.
type seen struct {
	mu   sync.Mutex // guards what
	what map[string]bool
	last []string // the previous await's result: a handler may be called once more
}

func (s *seen) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.what[text] = true
}

// await waits until exactly the calls of want (sorted) were seen and the condition holds, then
// clears the calls. Any other call is an error.
func (s *seen) await(t *testing.T, condition func() bool, want ...string) {
	t.Helper()

	var got []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got = got[:0]

		s.mu.Lock()
		for w := range s.what {
			if slices.Contains(want, w) || !slices.Contains(s.last, w) {
				got = append(got, w)
			}
		}
		s.mu.Unlock()

		if slices.Sort(got); len(got) >= len(want) && condition() {
			break
		}
	}

	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || !condition() {
		t.Errorf("handlers (-want +called), condition holds: %v:\n%s", condition(), diff)
	}

	s.mu.Lock()
	clear(s.what)
	s.last = want
	s.mu.Unlock()
}

type rig struct {
	*Cluster
	*seen
	link   kubetest.Link // of the Cluster
	client kubernetes.Interface
	config *rest.Config
}

func newRig(t *testing.T) *rig {
	t.Helper()

	r := &rig{seen: &seen{what: map[string]bool{}}}
	config := kubetest.Start(t).RestConfig()
	r.config = config

	var err error
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}

	r.Cluster, err = New(r.link.Config(config), "node1", annotation.TrustAll(), Handlers{
		Node: func() { r.add("node") }, Peers: func() { r.add("peers") },
		Service: func(k service.Key) { r.add(k.String()) }, Synced: func() { r.add("synced") },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	return r
}

func (r *rig) known() []netip.Addr {
	known, _ := r.Peers()
	return known
}

func (r *rig) hosts() []netip.Addr {
	_, hosts := r.Peers()
	return hosts
}

func (r *rig) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())

	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCluster_Behind: a Cluster that the API server does not reach is behind, until it follows
// again.
func TestCluster_Behind(t *testing.T) {
	r := newRig(t)
	if err := r.Behind(); err != nil {
		t.Errorf("before the first list, which Missing reports: %v", err)
	}

	r.start(t)

	await := func(behind bool) {
		t.Helper()

		var err error
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if err = r.Behind(); r.Missing() == "" && (err != nil) == behind {
				return
			}
		}

		t.Fatalf("behind: %v, want it: %t", err, behind)
	}
	await(false)

	r.link.Cut()
	await(true)
	r.link.Mend()
	await(false)
}

func (r *rig) createNode(t *testing.T, name string, annotations map[string]string, addresses ...string) {
	t.Helper()

	n, err := r.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{corev1.LabelTopologyZone: "zone1"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.9.0.0/24"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "host"}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}

	if _, err := r.client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) createService(t *testing.T, name, clusterIP string) {
	t.Helper()

	_, err := r.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"long": "text"}, Labels: map[string]string{"a": "b"}},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) createSlice(t *testing.T, name, svc string, headless bool) {
	t.Helper()

	labels := map[string]string{discoveryv1.LabelServiceName: svc, "more": "labels"}
	if headless {
		labels[corev1.IsHeadlessService] = ""
	}

	number, node, app, ok := int32(8080), "node2", "http", true

	_, err := r.client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Port: &number, AppProtocol: &app}},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.244.2.5"}, NodeName: &node, Zone: &app, Hostname: &app, Conditions: discoveryv1.EndpointConditions{Ready: &ok},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone1"}}},
			},
			{Addresses: []string{"10.244.2.6"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ok}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) createPod(t *testing.T, name, node string, hostPort int32) {
	t.Helper()

	_, err := r.client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: hostPort}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	r := newRig(t)
	always := func() bool { return true }

	r.createNode(t, "node1", map[string]string{"own": "kept"}, "172.30.0.11")
	r.createNode(t, "node2", map[string]string{annotation.HostCIDRs: `["172.30.0.12/24","fd00::12/64"]`, "foreign": "dropped"}, "172.30.9.9")

	if _, known := r.Keys(); known || r.Missing() == "" {
		t.Errorf("known before the start; missing %q", r.Missing())
	}

	r.start(t)
	r.await(t, func() bool { return r.Missing() == "" && r.Zone() == "zone1" }, "Service default/kubernetes", "node", "peers", "synced")

	r.createService(t, "web", "")
	r.createService(t, "headless", corev1.ClusterIPNone)
	r.createSlice(t, "web-1", "web", false)
	r.createSlice(t, "headless-1", "headless", true) // filtered out by the list's selector

	web := service.Key{Namespace: "default", Name: "web"}

	r.await(t, func() bool { return len(r.Objects(web).Slices) == 1 }, "Service default/headless", "Service default/web")
	r.checkTrimmed(t, r.Objects(web))

	r.createPod(t, "with", "node1", 80)
	r.createPod(t, "without", "node1", 0)
	r.createPod(t, "elsewhere", "node2", 80)

	with := service.Key{Kind: service.KindPod, Namespace: "default", Name: "with"}

	r.await(t, func() bool { return r.Objects(with).Pod != nil }, "Pod default/with")
	keys, known := r.Keys()
	slices.SortFunc(keys, service.Key.Compare)

	if got := fmt.Sprint(keys); !known || got != "[Service default/headless Service default/kubernetes Service default/web Pod default/with]" {
		t.Errorf("keys %s, known %v", got, known)
	}

	r.checkEndpointValidation(t)

	r.createNode(t, "node3", nil, "172.30.0.13")

	three := []netip.Addr{netip.MustParseAddr("172.30.0.12"), netip.MustParseAddr("172.30.0.13"), netip.MustParseAddr("fd00::12")}

	r.await(t, func() bool { return slices.Equal(r.known(), three) }, "peers")

	patch := func(name, change string) {
		t.Helper()

		if _, err := r.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch("node1", `{"metadata":{"labels":{"what":"ever"}}}`)
	r.await(t, func() bool { return r.Node().Labels["what"] == "ever" }, "node")
	// Labels of node2 are ignored; the event of node1 comes after it.
	patch("node2", `{"metadata":{"labels":{"what":"ever"}}}`)
	patch("node1", `{"metadata":{"labels":{"what":"else"}}}`)
	r.await(t, func() bool { return r.Node().Labels["what"] == "else" }, "node")
	patch("node2", `{"metadata":{"annotations":{"`+annotation.HostCIDRs+`":"[\"172.30.0.99/24\"]"}}}`)
	r.await(t, func() bool {
		return slices.Equal(r.known(), []netip.Addr{three[1], netip.MustParseAddr("172.30.0.99")})
	}, "peers")
	// Reserved ports depend on all host addresses in a Node.
	patch("node2", `{"metadata":{"annotations":{"`+annotation.NodeSubnets+`":"{\"default\":[\"10.244.2.0/24\"]}"}}}`)
	r.await(t, func() bool { return slices.Contains(r.hosts(), netip.MustParseAddr("10.244.2.2")) }, "peers")

	for _, a := range []string{"172.30.0.99", "172.30.9.9", "172.30.0.13"} {
		if !slices.Contains(r.hosts(), netip.MustParseAddr(a)) {
			t.Errorf("hosts %v, want %s too", r.hosts(), a)
		}
	}

	if n := r.Node(); n.Annotations["own"] != "kept" || n.Spec.PodCIDR != "" || len(n.ManagedFields) != 0 {
		t.Errorf("own node %+v", n)
	}

	if n, ok := getObject[corev1.Node](r.nodes.GetStore(), "node2"); !ok || n.Annotations["foreign"] != "" || len(n.Labels) != 0 {
		t.Errorf("other node %+v", n)
	}

	if err := r.client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	r.await(t, func() bool { return r.Objects(web).Service == nil }, "Service default/web")

	if err := r.client.CoreV1().Nodes().Delete(t.Context(), "node3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	r.await(t, func() bool { return len(r.known()) == 1 }, "peers")
	r.await(t, always)
}

// TestCluster_Peers_trust checks that the addresses which another Node claims count only if its status
// has them, and that a change of the status is noticed.
func TestCluster_Peers_trust(t *testing.T) {
	r := newRig(t)
	r.trust = annotation.Trust{Networks: []netip.Prefix{netip.MustParsePrefix("172.31.0.0/24")}}
	r.createNode(t, "node1", nil, "172.30.0.11")
	r.createNode(t, "node2", map[string]string{
		annotation.HostCIDRs:     `["172.30.0.12/24", "172.30.0.13/24", "172.31.0.12/24", "192.0.2.80/32"]`,
		annotation.TunnelAddress: "192.0.2.81",
	}, "172.30.0.12")
	r.start(t)

	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}

		return out
	}
	trusted := addrs("172.30.0.12", "172.31.0.12")

	r.await(t, func() bool {
		return r.Missing() == "" && slices.Equal(r.known(), trusted) && slices.Equal(r.hosts(), trusted)
	}, "Service default/kubernetes", "node", "peers", "synced")

	own := []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24"), netip.MustParsePrefix("192.0.2.80/32")}
	if got := r.TrustedHosts(own); !slices.Equal(got, own[:1]) {
		t.Errorf("own trusted addresses %v, want %v", got, own[:1])
	}

	patch := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"172.30.0.12"},{"type":"ExternalIP","address":"172.30.0.13"}]}}`)
	if _, err := r.client.CoreV1().Nodes().Patch(t.Context(), "node2", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}

	trusted = addrs("172.30.0.12", "172.30.0.13", "172.31.0.12")

	r.await(t, func() bool { return slices.Equal(r.known(), trusted) && slices.Equal(r.hosts(), trusted) }, "peers")
}

// TestCluster_apiServers: the endpoints in the slices of default/kubernetes are API servers, and
// the handler is called when they change.
func TestCluster_apiServers(t *testing.T) {
	r := newRig(t)

	var calls atomic.Int32

	r.handlers.APIServers = func() { calls.Add(1) }
	r.createNode(t, "node1", nil, "172.30.0.11")
	r.start(t)
	r.createSlice(t, "web-1", "web", false)
	r.createSlice(t, "more", "kubernetes", false)

	inside := []netip.Prefix{netip.MustParsePrefix("10.244.2.6/32")}
	has := func(a string) bool { return strings.Contains(r.APIServers(inside).String(), a) }
	await := func(what string, condition func() bool) {
		t.Helper()

		for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: API servers %s after %d calls", what, r.APIServers(inside), calls.Load())
			}
		}
	}
	await("slice added", func() bool { return has("10.244.2.5:8080") && calls.Load() > 0 })

	if has("10.244.2.6") {
		t.Errorf("API servers %s: one is inside the service networks", r.APIServers(inside))
	}

	before := calls.Load()

	if err := r.client.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	await("slice deleted", func() bool { return !has("10.244.2.5") && calls.Load() > before })
}

// checkEndpointValidation checks docs/services.md against the endpoints that the API server rejects
// in an EndpointSlice. refuseEndpoint in package service has to reject the others.
func (r *rig) checkEndpointValidation(t *testing.T) {
	t.Helper()

	for address, refused := range map[string]bool{
		"0.0.0.0": true, "::": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "169.254.169.254": true, "169.254.169.2": true, "fe80::1": true,
		"224.0.0.1": true, "ff02::1": true, "fe80::1%eth0": true, "::ffff:127.0.0.1": true,
		"224.0.1.1": false, "239.1.1.1": false, "ff0e::1": false, "255.255.255.255": false, "fd69::2": false, "100.64.0.2": false,
		"10.96.0.1": false, "172.30.0.12": false, "10.244.2.2": false,
	} {
		kind := discoveryv1.AddressTypeIPv4
		if strings.Contains(address, ":") {
			kind = discoveryv1.AddressTypeIPv6
		}

		number := int32(22)

		_, err := r.client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "tried", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: kind,
			Ports: []discoveryv1.EndpointPort{{Port: &number}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) != refused || !refused && err != nil {
			t.Errorf("endpoint %s: API server returned %v, want refused %t", address, err, refused)
		}
	}
}

// checkTrimmed checks the trimmed Service and its slice.
func (r *rig) checkTrimmed(t *testing.T, o service.Objects) {
	t.Helper()

	svc, slice := o.Service, o.Slices[0]
	if len(svc.Spec.Selector) != 1 || svc.Spec.Selector["app"] != "" || svc.Labels != nil || svc.Annotations != nil || len(svc.ManagedFields) != 0 {
		t.Errorf("service %+v", svc)
	}

	if svc.Spec.ClusterIP == "" || svc.Spec.Ports[0].Port != 80 || svc.CreationTimestamp.IsZero() || svc.UID == "" {
		t.Errorf("service %+v lacks something", svc)
	}

	one, two := slice.Endpoints[0], slice.Endpoints[1]
	if one.Zone != nil || one.Hostname != nil || one.TargetRef != nil || len(slice.Labels) != 1 || len(slice.ManagedFields) != 0 || slice.Ports[0].AppProtocol != nil {
		t.Errorf("slice %+v", slice)
	}

	if one.Addresses[0] != "10.244.2.5" || one.Hints.ForZones[0].Name != "zone1" || !*one.Conditions.Ready {
		t.Errorf("slice %+v lacks something", slice)
	}

	if one.NodeName != two.NodeName || one.Conditions.Ready != two.Conditions.Ready {
		t.Error("endpoints share neither the node's name nor the conditions")
	}
}

// In underlay mode, the agent follows its own Node, its pods and its pool only.
func TestNewUnderlay_followsTheNodeAndItsPool(t *testing.T) {
	r := newRig(t)
	pools, nodes, synced := make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})

	var err error

	r.Cluster, err = NewUnderlay(r.config, "vm1", Handlers{
		Node: func() { nodes <- struct{}{} }, Pool: func() { pools <- struct{}{} }, Synced: func() { close(synced) },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	r.start(t)
	<-synced

	if _, ok := r.Pool(); ok || r.Missing() != "" || r.Node() != nil {
		t.Errorf("pool known %t, missing %q, node %v", ok, r.Missing(), r.Node())
	}

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolNamespace}}
	if _, err := r.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"vm2", "vm1"} { // the other node's first
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolPrefix + name}, Data: map[string]string{"of": name}}
		if _, err := r.client.CoreV1().ConfigMaps(annotation.PoolNamespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		r.createNode(t, name, nil, "10.0.0.11")
	}

	<-pools
	<-nodes

	if data, ok := r.Pool(); !ok || data["of"] != "vm1" {
		t.Errorf("pool %v, known %t", data, ok)
	}

	if n := r.Node(); n == nil || n.Name != "vm1" {
		t.Errorf("node %v", n)
	}

	if others := len(r.nodes.GetStore().List()) + len(r.pools.GetStore().List()); others != 2 {
		t.Errorf("%d objects, want the Node and the ConfigMap", others)
	}
}
