package healthcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

var key = service.Key{Namespace: "ns", Name: "web"}

// rig is a running Server and its view of the cluster.
type rig struct {
	*Server
	healthy atomic.Bool

	mu      sync.Mutex // guards all below
	objects service.Objects
	events  []string
}

func newRig(t *testing.T) *rig {
	r := &rig{}
	r.healthy.Store(true)
	r.Server = New(Options{
		Node: "node1", Healthy: r.healthy.Load, Log: slog.New(slog.DiscardHandler),
		Keys: func() ([]service.Key, bool) { return nil, true },
		Objects: func(service.Key) service.Objects {
			r.mu.Lock()
			defer r.mu.Unlock()

			return r.objects
		},
		Warn: func(_ context.Context, svc *corev1.Service, reason, message string) error {
			r.mu.Lock()
			defer r.mu.Unlock()

			r.events = append(r.events, svc.Name+" "+reason+" "+message)

			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())

	done := make(chan error)
	go func() { done <- r.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	return r
}

// set gives the Service this port (0 for none) and these endpoints.
func (r *rig) set(port int, endpoints ...discoveryv1.Endpoint) {
	r.mu.Lock()
	r.objects = service.Objects{
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Spec: corev1.ServiceSpec{
				ClusterIPs: []string{"10.96.0.1"},
				Type:       corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: int32(port),
			},
		},
		Slices: []*discoveryv1.EndpointSlice{
			{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints},
			{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: endpoints[:min(1, len(endpoints))]}, // names do not matter
		},
	}
	r.mu.Unlock()
	r.Changed(key)
}

func endpoint(address, node string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

// ask returns the response on one line, or "" if the port is closed.
func ask(port int) string {
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/anything", port))
	if err != nil {
		return ""
	}
	defer res.Body.Close()

	var a answer
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return err.Error()
	}

	return fmt.Sprint(res.StatusCode, " ", a.Service.Namespace, "/", a.Service.Name, " ", a.LocalEndpoints, " ", a.ServiceProxyHealthy,
		" ", res.Header.Get("X-Load-Balancing-Endpoint-Weight"), " ", res.Header.Get("Content-Type"))
}

// until repeats the request; only the test's timeout limits it.
func until(t *testing.T, port int, want string) {
	t.Helper()

	got := ""
	for t.Context().Err() == nil && time.Since(started) < limit {
		if got = ask(port); got == want {
			return
		}

		time.Sleep(5 * time.Millisecond)
	}

	t.Fatalf("port %d answers %q, want %q", port, got, want)
}

const limit = time.Minute

var started = time.Now()

// freePort returns an unused port.
func freePort(t *testing.T) (int, net.Listener) {
	t.Helper()

	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}

	return l.Addr().(*net.TCPAddr).Port, l
}

func TestServiceCheckCountsLocalEndpoints(t *testing.T) {
	r := newRig(t)
	port, l := freePort(t)
	l.Close()
	r.set(port,
		endpoint("10.244.1.5", "node1", true), endpoint("10.244.1.6", "node1", true), endpoint("10.244.1.5", "node1", true),
		endpoint("10.244.1.7", "node1", false), endpoint("10.244.2.5", "node2", true))
	until(t, port, "200 ns/web 2 true 2 application/json")
	r.set(port, endpoint("10.244.2.5", "node2", true))
	until(t, port, "503 ns/web 0 true 0 application/json")
	r.set(port, endpoint("10.244.1.5", "node1", true))
	until(t, port, "200 ns/web 1 true 1 application/json")
	r.healthy.Store(false)
	until(t, port, "503 ns/web 1 false 1 application/json")
	r.healthy.Store(true)

	other, l := freePort(t)
	l.Close()
	r.set(other, endpoint("10.244.1.5", "node1", true))
	until(t, other, "200 ns/web 1 true 1 application/json")
	until(t, port, "")
	r.set(0)
	until(t, other, "")
}

// A port in use causes one Event, and the check starts when the port is free.
func TestPortInUseIsRetried(t *testing.T) {
	r := newRig(t)
	port, l := freePort(t)
	r.set(port, endpoint("10.244.1.5", "node1", true))

	var events []string
	for len(events) == 0 && time.Since(started) < limit {
		time.Sleep(5 * time.Millisecond)
		r.mu.Lock()
		events = append(events, r.events...)
		r.mu.Unlock()
	}

	if len(events) != 1 || !strings.HasPrefix(events[0], "web FailedToStartServiceHealthcheck node node1: serve health check of service ns/web: listen tcp") {
		t.Errorf("events %q", events)
	}

	l.Close()
	until(t, port, "200 ns/web 1 true 1 application/json")
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.events) != 1 {
		t.Errorf("events %q, want one", r.events)
	}
}

func TestWants(t *testing.T) {
	good := func() *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.96.0.1"},
			Type:       corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 32000,
		}}
	}
	for name, change := range map[string]func(*corev1.Service){
		"policy Cluster":  func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster },
		"node port":       func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"another's proxy": func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"} },
		"no port":         func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 },
	} {
		svc := good()
		change(svc)

		if got := wants(service.Objects{Service: svc}, "node1"); got != (wanted{}) {
			t.Errorf("%s: wants %+v", name, got)
		}
	}

	if got := wants(service.Objects{Service: good()}, "node1"); got.port != 32000 {
		t.Errorf("wants %+v", got)
	}
}

func TestProxy(t *testing.T) {
	for _, tt := range []struct {
		healthy, leaving bool
		codes            []int // /healthz, /livez
	}{
		{true, false, []int{200, 200}}, {true, true, []int{503, 200}}, {false, false, []int{503, 503}},
	} {
		h := Proxy{Healthy: func() bool { return tt.healthy }, Leaving: func() bool { return tt.leaving }}.handler()

		var codes []int

		for _, path := range []string{"/healthz", "/livez"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))

			codes = append(codes, w.Code)
			if path == "/healthz" && !strings.Contains(w.Body.String(), fmt.Sprintf(`"nodeEligible": %t`, !tt.leaving)) {
				t.Errorf("%+v: %s", tt, w.Body)
			}
		}

		if diff := cmp.Diff(tt.codes, codes); diff != "" {
			t.Errorf("healthy %t, leaving %t (-want +got):\n%s", tt.healthy, tt.leaving, diff)
		}
	}
}
