package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestRefusedEndpoints lists the endpoints that controller and agent accept and refuse in an
// EndpointSlice.
func TestRefusedEndpoints(t *testing.T) {
	const notGlobal, ours, tunnels = "not a global unicast address", "is the node's own", "is the tunnels'"

	s := newSides(t)
	for _, tc := range []struct {
		address string
		port    int32
		proto   corev1.Protocol
		made    string // the creator, "" is a tenant; trusted: with --trust-endpoint-slices
		refused string
	}{
		{"10.244.2.5", 80, "TCP", "", ""},
		{"fd00:10:244:2::5", 80, "TCP", "", ""},
		{"198.51.100.1", 22, "TCP", "", ""}, // outside the cluster
		{"169.254.169.254", 80, "TCP", "", notGlobal},
		{"169.254.1.1", 80, "UDP", "", notGlobal},
		{"fe80::1", 80, "TCP", "", notGlobal},
		{"127.0.0.1", 80, "TCP", "", notGlobal},
		{"127.9.9.9", 80, "TCP", "", notGlobal},
		{"::1", 80, "TCP", "", notGlobal},
		{"0.0.0.0", 80, "TCP", "", notGlobal},
		{"::", 80, "TCP", "", notGlobal},
		{"224.0.0.1", 80, "UDP", "", notGlobal},
		{"239.1.1.1", 80, "UDP", "", notGlobal},
		{"ff02::1", 80, "UDP", "", notGlobal},
		{"ff0e::1", 80, "UDP", "", notGlobal},
		{"255.255.255.255", 80, "UDP", "", notGlobal},
		{"169.254.169.2", 80, "TCP", "", notGlobal},
		{"fd69::2", 80, "TCP", "", "inside the masquerade network"},
		{"10.96.0.1", 443, "TCP", "", "inside the service network"},
		{"fd00:10:96::1", 443, "TCP", "", "inside the service network"},
		{"100.64.0.2", 80, "TCP", "", "inside the join network"},
		{"fd98::2", 80, "TCP", "", "inside the join network"},
		{"172.30.0.11", 80, "TCP", "", ""},
		{"172.30.0.12", 9100, "TCP", "", ""},
		{"172.30.0.11", 22, "TCP", "", ours},
		{"fd00:172:30::11", 10250, "TCP", "", ours},
		{"172.31.9.1", 6443, "TCP", "", ours},
		{"172.30.0.12", 2379, "TCP", "", ours},
		{"172.31.9.2", 2380, "TCP", "", ours},
		{"172.30.0.13", 6443, "TCP", "", ours},
		{"172.30.0.14", 22, "TCP", "", ours},
		{"10.244.1.2", 22, "TCP", "", ours}, // management ports
		{"10.244.2.2", 22, "TCP", "", ours},
		{"fd00:10:244:2::2", 10250, "TCP", "", ours},
		{"172.30.0.11", 22, "UDP", "", ""},
		{"172.30.0.12", 6642, "TCP", "", ours},
		{"172.30.0.11", 6645, "TCP", "", ours},
		{"172.30.0.11", 6081, "TCP", "", ""},
		{"172.30.0.12", 6081, "UDP", "", tunnels},
		{"fd00:172:30::12", 6081, "UDP", "", tunnels},
		{"172.30.0.12", 6081, "UDP", "selector", tunnels},
		{"172.30.0.12", 6081, "UDP", "apiserver", tunnels},
		{"172.30.1.12", 6081, "UDP", "", tunnels},
		{"172.30.1.99", 6081, "UDP", "", tunnels}, // a tunnel's that the Nodes do not have
		{"10.244.2.2", 6081, "UDP", "", tunnels},
		{"10.244.2.5", 6081, "UDP", "", ""}, // a pod's
		{"172.30.0.11", 22, "SCTP", "", ""},
		{"172.30.0.12", 10250, "TCP", "selector", "set --trust-endpoint-slices"},
		{"172.30.0.12", 10250, "TCP", "trusted selector", ""},  // a pod on the host's network
		{"172.30.0.12", 10250, "TCP", "trusted label", ours},   // the policy may be younger than the slice
		{"fd00:172:30::12", 22, "TCP", "trusted selector", ""}, // the same, IPv6
		{"172.30.0.12", 10250, "TCP", "trusted", ours},
		{"172.30.0.12", 6443, "TCP", "apiserver", ""},
		{"172.30.0.12", 6443, "TCP", "trusted apiserver", ""},
		{"172.30.0.12", 22, "TCP", "apiserver", ours},
		{"172.30.0.12", 22, "TCP", "trusted apiserver", ours},
		{"169.254.169.254", 80, "TCP", "selector", notGlobal},
	} {
		t.Run(fmt.Sprintf("%s %d %s %s", tc.address, tc.port, tc.proto, tc.made), func(t *testing.T) {
			svc := serviceAt("192.0.2.1", 80, tc.proto, false)
			addr := netip.MustParseAddr(tc.address)

			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{}}, AddressType: discoveryv1.AddressTypeIPv6}
			if addr.Is4() {
				slice.AddressType = discoveryv1.AddressTypeIPv4
			}

			made, trusted := strings.CutPrefix(tc.made, "trusted")
			s.trust = trusted

			switch strings.TrimSpace(made) {
			case "selector":
				svc.Spec.Selector = map[string]string{"app": "web"}
				fallthrough
			case "label":
				slice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
			case "apiserver":
				svc.Namespace, svc.Name = "default", "kubernetes"
			}

			slice.Namespace, slice.Labels[discoveryv1.LabelServiceName] = svc.Namespace, svc.Name
			slice.Ports = []discoveryv1.EndpointPort{{Port: &tc.port, Protocol: &tc.proto}}
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{tc.address}}}
			want := netip.AddrPortFrom(addr, uint16(tc.port)).String()

			vip := "10.96.0.10:80"
			if addr.Is6() {
				vip = "[fd00:10:96::10]:80"
			}

			vips, event := s.controller(svc, slice)
			agent := s.agent(model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{slice}})

			if tc.refused != "" {
				want = ""
			}

			if vips[vip] != want || tc.proto != "SCTP" && agent[vip] != want { // SCTP sockets are not translated
				t.Errorf("the controller gives connections to %q, the agent to %q, want %q", vips[vip], agent[vip], want)
			}

			if (event == "") != (tc.refused == "") || !strings.Contains(event, tc.refused) {
				t.Errorf("the Event says %q, want %q", event, tc.refused)
			}
		})
	}
}

// Controller and agent truncate a Service beyond a bound in the same way, and neither admits
// clients outside its source ranges.
func TestControllerAndAgentTruncateAlike(t *testing.T) {
	s := newSides(t)

	for _, tc := range []struct{ ports, external, endpoints, slicePorts int }{
		{1025, 1, 1, 1}, {1, 65, 1, 1}, {200, 64, 1, 1}, {300, 1, 3000, 1}, {20, 1, 1, 2000},
	} {
		svc := serviceAt("192.0.2.1", 80, corev1.ProtocolTCP, false)

		svc.Spec.Ports, svc.Spec.ExternalIPs = nil, nil
		for i := range tc.ports {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(3000 + i)})
		}

		for i := range tc.external {
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("192.0.2.%d", 1+i))
		}

		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4}

		for i := range tc.slicePorts {
			name, number := fmt.Sprint(i), int32(8000+i)
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
		}

		for i := range tc.endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 16+i/250, 3+i%250)}})
		}

		vips, event := s.controller(svc, slice)

		agent := s.agent(model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{slice}})
		if len(vips) != len(agent) {
			t.Errorf("%+v: the controller serves %d frontends, the agent %d", tc, len(vips), len(agent))
		}

		for front, to := range vips {
			if agent[front] != to {
				t.Errorf("%+v: the controller gives %s to %.60q, the agent to %.60q", tc, front, to, agent[front])
			}
		}

		if (event == "") != (tc.ports == 20) {
			t.Errorf("%+v: Event %q", tc, event)
		}
	}

	svc := serviceAt("192.0.2.1", 80, corev1.ProtocolTCP, true)
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.5"}}}}

	slice.Ports = []discoveryv1.EndpointPort{{Name: new(string), Port: &svc.Spec.Ports[0].Port}}
	for n, want := range map[int]string{model.MaxSourceRanges: "10.244.2.5:80", model.MaxSourceRanges + 1: ""} {
		svc.Spec.LoadBalancerSourceRanges = slices.Repeat([]string{"172.30.0.0/24"}, n)
		if got := s.agent(model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{slice}})["192.0.2.1:80"]; got != want {
			t.Errorf("with %d source ranges the node's sockets reach %q, want %q", n, got, want)
		}
	}
}
