package service_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestNew_portNumbers: which numbers of a Service's port, node port and health check port are
// served.
func TestNew_portNumbers(t *testing.T) {
	for _, tc := range []struct {
		port, nodePort, health       int32
		proto                        corev1.Protocol
		wantPort, wantNode, wantTest uint16 // wantPort 0: the port is left out
	}{
		{port: 1, nodePort: 1, health: 1, wantPort: 1, wantNode: 1, wantTest: 1},
		{port: 65535, nodePort: 65535, health: 65535, wantPort: 65535, wantNode: 65535, wantTest: 65535},
		{port: 80, nodePort: 0, health: 0, wantPort: 80},
		{port: 80, nodePort: -1, health: -1, wantPort: 80},
		{port: 80, nodePort: 65536 + 80, health: 65536 + 80, wantPort: 80},
		{port: 80, nodePort: 65536, health: 65536, wantPort: 80},
		{port: 0},
		{port: -1},
		{port: 65536},
		{port: 65536 + 80},
		{port: 80, proto: "ICMP"},
		{port: 80, proto: corev1.ProtocolUDP, wantPort: 80},
		{port: 80, proto: corev1.ProtocolSCTP, wantPort: 80},
	} {
		svc := &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: tc.port, NodePort: tc.nodePort, Protocol: tc.proto}},
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: tc.health,
		}}
		s := service.New(service.Config{}, svc, nil)

		var got service.Port
		if len(s.Ports) > 0 {
			got = s.Ports[0]
		}

		if (len(s.Ports) > 0) != (tc.wantPort > 0) || got.Number != tc.wantPort || got.NodePort != tc.wantNode || s.HealthCheckPort != tc.wantTest {
			t.Errorf("%+v: port %d, node port %d, health check %d", tc, got.Number, got.NodePort, s.HealthCheckPort)
		}
	}

	svc := corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, HealthCheckNodePort: 30000}}
	for want, of := range map[uint16]func(*corev1.Service){
		0: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer },
		1: func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		},
	} {
		edited := svc.DeepCopy()
		of(edited)

		if got := service.New(service.Config{}, edited, nil).HealthCheckPort; got != 0 {
			t.Errorf("%d: health check port %d of a Service that is not both LoadBalancer and Local", want, got)
		}
	}
}

// TestKeptPorts: ssh and what runs Kubernetes remain with the host at its own addresses.
func TestKeptPorts(t *testing.T) {
	const want = "[{TCP 22} {TCP 10250} {TCP 6443} {TCP 2379} {TCP 2380} {TCP 9409} {TCP 9410} {TCP 10256} " +
		"{TCP 6641} {TCP 6642} {TCP 6643} {TCP 6644} {TCP 6645} {UDP 6081}]"
	if got := fmt.Sprint(service.KeptPorts()); got != want {
		t.Errorf("kept ports %s", got)
	}

	host := netip.MustParseAddr("172.30.0.11")

	isHost := func(a netip.Addr) bool { return a == host }
	for _, tc := range []struct {
		proto corev1.Protocol
		at    string
		want  bool
	}{
		{"TCP", "172.30.0.11:22", true},
		{"", "172.30.0.11:22", true},
		{"UDP", "172.30.0.11:22", false},
		{"SCTP", "172.30.0.11:22", false},
		{"TCP", "172.30.0.11:23", false},
		{"TCP", "172.30.0.12:22", false},
		{"TCP", "0.0.0.0:22", true},
		{"TCP", "[::]:22", true},
		{"TCP", "127.0.0.1:22", true},
		{"TCP", "[::1]:22", true},
		{"TCP", "169.254.1.1:22", true},
		{"TCP", "[fe80::1]:22", true},
		{"TCP", "0.0.0.0:23", false},
		{"UDP", "127.0.0.1:22", false},
		{"TCP", "172.30.0.11:6641", true},
		{"TCP", "172.30.0.11:6645", true},
		{"TCP", "172.30.0.11:6646", false},
		{"UDP", "172.30.0.11:6642", false},
		{"UDP", "172.30.0.11:6081", true},
		{"UDP", "172.30.0.12:6081", false},
		{"UDP", "0.0.0.0:6081", true},
		{"UDP", "[::1]:6081", true},
		{"UDP", "[fe80::1]:6081", true},
		{"TCP", "172.30.0.11:6081", false},
		{"SCTP", "172.30.0.11:6081", false},
	} {
		if got := service.Keeps(tc.proto, netip.MustParseAddrPort(tc.at), isHost); got != tc.want {
			t.Errorf("%s %s is the node's own: %t", tc.proto, tc.at, got)
		}
	}
}

// TestService_Endpoints_atKeptPorts: an endpoint at a kept port of a host is used only if it is
// known that the control plane wrote its slice. A label tells so if the settings say that an
// admission policy protects it.
func TestService_Endpoints_atKeptPorts(t *testing.T) {
	const controller, remedy = "endpointslice-controller.k8s.io", "set --trust-endpoint-slices"

	selector := map[string]string{"app": "web"}
	for _, tc := range []struct {
		namespace, name string
		selector        map[string]string
		manager         string
		port            int32
		// used and usedIfTrusted: without and with the setting.
		used, usedIfTrusted bool
		told                bool // the setting would help
	}{
		{"ns", "s", selector, controller, 6443, false, true, true},
		{"ns", "s", selector, controller, 22, false, true, true},
		{"ns", "s", nil, controller, 22, false, false, false},
		{"ns", "s", selector, "other", 22, false, false, false},
		{"ns", "s", selector, "", 22, false, false, false},
		{"default", "kubernetes", nil, "", 6443, true, true, false},
		{"default", "kubernetes", nil, controller, 6443, true, true, false},
		{"default", "kubernetes", nil, "", 22, false, false, false},
		{"default", "kubernetes", nil, controller, 22, false, false, false},
		{"default", "other", nil, "", 6443, false, false, false},
		{"other", "kubernetes", nil, "", 6443, false, false, false},
	} {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: tc.name},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 443}}, Selector: tc.selector},
		}
		slice := sliceOf("a", discoveryv1.AddressTypeIPv4, tc.port, discoveryv1.Endpoint{Addresses: []string{"172.30.0.11"}})
		slice.Labels = map[string]string{discoveryv1.LabelManagedBy: tc.manager}

		for trust, used := range map[bool]bool{false: tc.used, true: tc.usedIfTrusted} {
			s := service.New(service.Config{TrustEndpointSlices: trust}, svc, []*discoveryv1.EndpointSlice{slice})

			var why string

			all := s.Endpoints(s.Ports[0], true, func(netip.Addr) bool { return true }, func(_ string, _ netip.Addr, reason string) { why = reason })
			if (len(all) == 1) != used || strings.HasPrefix(why, fmt.Sprintf("TCP port %d of a node is the node's own", tc.port)) == used {
				t.Errorf("%+v, trust %t: endpoints %v, refused %q", tc, trust, all, why)
			}

			if told := strings.Contains(why, remedy); told != (tc.told && !trust) {
				t.Errorf("%+v, trust %t: the reason %q names the setting: %t", tc, trust, why, told)
			}
		}
	}
}

func sliceOf(name string, kind discoveryv1.AddressType, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: kind, Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: endpoints,
	}
}

// TestService_ReadyOn: the health check counts each ready endpoint of the node once, of the
// family that has most, whatever other slices and endpoints there are.
func TestService_ReadyOn(t *testing.T) {
	here, there, no := "here", "there", false
	on := func(node *string, addresses ...string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: addresses, NodeName: node}
	}
	gone := on(&here, "10.244.1.9")
	gone.Conditions.Ready = &no
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}}}

	s := service.New(service.Config{}, svc, []*discoveryv1.EndpointSlice{
		sliceOf("a", discoveryv1.AddressTypeFQDN, 80, on(&here, "example.org"), on(&here, "example.com"), on(&here, "example.net")),
		sliceOf("b", discoveryv1.AddressTypeIPv4, 80, on(&here), gone, on(&there, "10.244.2.3"), on(nil, "10.244.3.3"), on(&here, "10.244.1.3"), on(&here, "10.244.1.4")),
		sliceOf("c", discoveryv1.AddressTypeIPv4, 81, on(&here, "10.244.1.3")),
		sliceOf("d", discoveryv1.AddressTypeIPv6, 80, on(&here, "fd00:10:244:1::3")),
	})
	if got := s.ReadyOn("here"); got != 2 {
		t.Errorf("%d ready endpoints, want 2", got)
	}
}

// TestNewHints_ofReadyEndpoints: only ready endpoints need hints, whatever their order.
func TestNewHints_ofReadyEndpoints(t *testing.T) {
	no, yes := false, true
	ready := discoveryv1.Endpoint{Addresses: []string{"10.244.1.3"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}}
	leaving := discoveryv1.Endpoint{Addresses: []string{"10.244.1.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	s := service.New(service.Config{}, svc, []*discoveryv1.EndpointSlice{sliceOf("a", discoveryv1.AddressTypeIPv4, 80, leaving, ready)})

	all := s.Endpoints(s.Ports[0], true, func(netip.Addr) bool { return false }, nil)
	if hints := service.NewHints(all); len(all) != 2 || len(hints.Zones["a"]) != 1 {
		t.Errorf("endpoints %v, hints %v", all, hints)
	}
}

// TestNew_refusedAddresses: which cluster IPs and external IPs are refused, and that those after
// them are served.
func TestNew_refusedAddresses(t *testing.T) {
	only4 := service.Config{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

	ranged := service.Config{ExternalIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	for _, tc := range []struct {
		name              string
		cfg               service.Config
		clusterIPs, ips   []string
		cluster, external string
		refused           string
	}{
		{"other family first", only4, []string{"fd00::1", "10.96.0.1"}, nil, "[10.96.0.1]", "[]", "[cluster IP fd00::1: the cluster has no IPv6]"},
		{"no ranges", service.Config{}, []string{"10.96.0.1"}, []string{"198.51.100.1"}, "[10.96.0.1]", "[]", "[external IP 198.51.100.1: not in the ranges of --allow-external-ips (none are set)]"},
		{"external IP outside the ranges", ranged, []string{"10.96.0.1"}, []string{"198.51.100.1", "203.0.113.1"}, "[10.96.0.1]", "[203.0.113.1]", "[external IP 198.51.100.1: not in the ranges of --allow-external-ips]"},
		{"no address", ranged, []string{"10.96.0.1"}, []string{"x", "203.0.113.1"}, "[10.96.0.1]", "[203.0.113.1]", "[external IP x: not an address]"},
	} {
		s := service.New(tc.cfg, &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: tc.clusterIPs, ExternalIPs: tc.ips}}, nil)
		if got := strings.Join([]string{fmt.Sprint(s.ClusterIPs), fmt.Sprint(s.External), fmt.Sprint(s.Refused)}, " "); got != strings.Join([]string{tc.cluster, tc.external, tc.refused}, " ") {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
}

// TestConfig_DependsOnNodes: a Service whose endpoints are pods and are for all nodes alike does
// not depend on the nodes; one with an endpoint at a port that a host keeps does, because hosts are
// refused.
func TestConfig_DependsOnNodes(t *testing.T) {
	cfg := service.Config{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 80}}}}

	hinted := discoveryv1.Endpoint{Addresses: []string{"10.244.1.3"}, Hints: &discoveryv1.EndpointHints{}}
	for _, tc := range []struct {
		port    int32
		address string
		want    bool
	}{
		{8080, "10.244.1.3", false},
		{22, "10.244.1.3", true},
		{6443, "10.244.1.3", true},
		{8080, "172.30.0.11", true},
		{65536 + 22, "10.244.1.3", false},
		{22 - 65536, "10.244.1.3", false},
		{0, "10.244.1.3", false},
	} {
		slice := sliceOf("a", discoveryv1.AddressTypeIPv4, tc.port, discoveryv1.Endpoint{Addresses: []string{tc.address}})
		if got := cfg.DependsOnNodes(svc, []*discoveryv1.EndpointSlice{slice}); got != tc.want {
			t.Errorf("endpoint %s:%d: depends on nodes %t", tc.address, tc.port, got)
		}
	}

	none := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{}}}
	if cfg.DependsOnNodes(svc, []*discoveryv1.EndpointSlice{none}) {
		t.Error("a slice of all ports depends on nodes")
	}

	if !cfg.DependsOnNodes(svc, []*discoveryv1.EndpointSlice{sliceOf("a", discoveryv1.AddressTypeIPv4, 8080, hinted)}) {
		t.Error("hints do not depend on nodes")
	}
}

// TestConfig_DependsOnNodes_ofPods: a Service with an endpoint of a pod depends on the nodes only
// if the endpoint has a kept port, because the address may be that of a node's management port.
func TestConfig_DependsOnNodes_ofPods(t *testing.T) {
	cfg := service.Config{Pods: prefixes("10.244.0.0/16")}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 80}}}}

	for _, tc := range []struct {
		address string
		port    int32
		proto   corev1.Protocol
		want    bool
	}{
		{"10.244.1.2", 80, "TCP", false},
		{"10.244.1.2", 22, "TCP", true},
		{"10.244.1.2", 22, "UDP", false},
		{"10.244.1.2", 6641, "TCP", true},
		{"10.244.1.2", 6081, "TCP", false},
		{"10.244.1.2", 6081, "UDP", true},
		{"172.30.0.11", 80, "TCP", true},
	} {
		slice := sliceOf("a", discoveryv1.AddressTypeIPv4, tc.port, discoveryv1.Endpoint{Addresses: []string{tc.address}})

		slice.Ports[0].Protocol = &tc.proto
		if got := cfg.DependsOnNodes(svc, []*discoveryv1.EndpointSlice{slice}); got != tc.want {
			t.Errorf("%s port %d of %s: depends on nodes %t", tc.proto, tc.port, tc.address, got)
		}
	}
}

// TestService_refusesTunnelEndpoints: UDP port 6081 is accepted at addresses of pods only, in slices of
// users and in slices of the control plane.
func TestService_refusesTunnelEndpoints(t *testing.T) {
	const host, management = "172.30.0.11", "10.244.1.2"

	isHost := func(a netip.Addr) bool { return a.String() == host || a.String() == management }

	pods := prefixes("10.244.0.0/16")
	for _, tc := range []struct {
		pods    []netip.Prefix // nil: unknown
		address string
		proto   corev1.Protocol
		used    bool
	}{
		{pods, host, "UDP", false},
		{pods, management, "UDP", false},
		{pods, "172.30.1.12", "UDP", false}, // perhaps a tunnel's
		{pods, "10.244.1.5", "UDP", true},
		{pods, host, "TCP", true},
		{pods, host, "SCTP", true},
		{nil, host, "UDP", false},
		{nil, "172.30.1.12", "UDP", true},
	} {
		for _, name := range []string{"kubernetes", "web"} {
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: corev1.ServiceSpec{
					ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: tc.proto}}, Selector: map[string]string{"app": "web"},
				},
			}
			slice := sliceOf("a", discoveryv1.AddressTypeIPv4, 6081, discoveryv1.Endpoint{Addresses: []string{tc.address}})
			slice.Labels = map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
			slice.Ports[0].Protocol = &tc.proto
			s := service.New(service.Config{Pods: tc.pods}, svc, []*discoveryv1.EndpointSlice{slice})

			var why string

			all := s.Endpoints(s.Ports[0], true, isHost, func(_ string, _ netip.Addr, reason string) { why = reason })
			if (len(all) == 1) != tc.used || (why == "UDP port 6081 outside of the pods is the tunnels'") == tc.used {
				t.Errorf("%s, %s %s, pod networks %v: endpoints %v, refused %q", name, tc.proto, tc.address, tc.pods, all, why)
			}
		}
	}
}
