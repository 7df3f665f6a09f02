package service_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestNew_bounds states what is left of a Service at each bound and one above it, and what is
// refused.
func TestNew_bounds(t *testing.T) {
	for _, tc := range []struct {
		ports, external, ingress, slices, endpoints int
		wantPorts, wantExternal                     int
		refused                                     string
	}{
		{ports: 1024, wantPorts: 1024},
		{ports: 1025, wantPorts: 1024, refused: "the last 1 ports: a service has at most 1024"},
		{ports: 1, external: 64, ingress: 64, wantPorts: 1, wantExternal: 128},
		{ports: 1, external: 65, wantPorts: 1, wantExternal: 64, refused: "the last 1 external IPs: a service has at most 64"},
		{ports: 1, ingress: 66, wantPorts: 1, wantExternal: 64, refused: "the last 2 load balancer addresses: a service has at most 64"},
		{ports: 124, external: 64, wantPorts: 124, wantExternal: 64}, // 124 × (2 + 64) ≤ 8192
		{ports: 125, external: 64, wantPorts: 124, wantExternal: 64, refused: "the last 1 ports"},
		{ports: 63, external: 64, ingress: 64, wantPorts: 63, wantExternal: 128},
		{ports: 64, external: 64, ingress: 64, wantPorts: 63, wantExternal: 128, refused: "the last 1 ports"},
		{ports: 129, slices: 2, endpoints: 510, wantPorts: 128, refused: "the last 1 ports"}, // 2^17 / 1021
		{ports: 128, slices: 2, endpoints: 510, wantPorts: 128},
		{ports: 2, slices: 300, endpoints: 1000, wantPorts: 1, refused: "the last 1 ports"}, // one is always served
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			svc := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.0.10"}}}
			for i := range tc.ports {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: int32(1 + i)})
			}

			for i := range tc.external {
				svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("192.0.2.%d", i))
			}

			for i := range tc.ingress {
				svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("198.51.100.%d", i)})
			}

			var eps []*discoveryv1.EndpointSlice
			for range tc.slices {
				eps = append(eps, &discoveryv1.EndpointSlice{Endpoints: make([]discoveryv1.Endpoint, tc.endpoints)})
			}

			s := service.New(service.Config{ExternalIPs: prefixes("192.0.2.0/24")}, svc, eps)
			if len(s.Ports) != tc.wantPorts || len(s.External) != tc.wantExternal {
				t.Errorf("%d ports and %d external addresses, want %d and %d", len(s.Ports), len(s.External), tc.wantPorts, tc.wantExternal)
			}

			if got := fmt.Sprint(s.Refused); len(s.Refused) > 1 || (got == "[]") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
				t.Errorf("refused %v, want %q", got, tc.refused)
			}
		})
	}
}

// TestService_SourceRanges_bound: more source ranges than the bound let no client in.
func TestService_SourceRanges_bound(t *testing.T) {
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}}}
	for range service.MaxSourceRanges {
		svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, " 192.0.2.9/24")
	}

	within := service.New(service.Config{}, svc, nil)
	if got := within.SourceRanges(true); len(got) != service.MaxSourceRanges || got[0] != netip.MustParsePrefix("192.0.2.0/24") || within.TooManySourceRanges() {
		t.Errorf("%d ranges of %d, the first %v, too many %t", len(got), service.MaxSourceRanges, got[0], within.TooManySourceRanges())
	}

	svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, "0.0.0.0/0")

	over := service.New(service.Config{}, svc, nil)
	for is4, want := range map[bool]string{true: "[0.0.0.0/32]", false: "[::/128]"} {
		if got := fmt.Sprint(over.SourceRanges(is4)); got != want || !over.TooManySourceRanges() {
			t.Errorf("with one more: %s, too many %t, want %s", got, over.TooManySourceRanges(), want)
		}
	}
}

// TestHostPorts: which pods have host ports, and what of a malformed port is refused.
func TestHostPorts(t *testing.T) {
	pod := func(edit func(*corev1.Pod), ports ...corev1.ContainerPort) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Ports: ports}}}}
		if edit != nil {
			edit(p)
		}

		return p
	}

	web := corev1.ContainerPort{HostPort: 80, ContainerPort: 8080}
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		ports int
		why   string
	}{
		"absent":         {pod: nil},
		"one":            {pod: pod(nil, web), ports: 1},
		"highest":        {pod: pod(nil, corev1.ContainerPort{HostPort: 65535, ContainerPort: 65535}), ports: 1},
		"none":           {pod: pod(nil, corev1.ContainerPort{ContainerPort: 80})},
		"not bound":      {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }, web)},
		"host network":   {pod: pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }, web)},
		"succeeded":      {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, web)},
		"failed":         {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, web)},
		"too high":       {pod: pod(nil, corev1.ContainerPort{HostPort: 65536, ContainerPort: 80}), why: "host port 65536"},
		"negative":       {pod: pod(nil, corev1.ContainerPort{HostPort: -1, ContainerPort: 80}), why: "host port -1"},
		"container":      {pod: pod(nil, corev1.ContainerPort{HostPort: 80, ContainerPort: 65536}), why: "container port 65536"},
		"no container":   {pod: pod(nil, corev1.ContainerPort{HostPort: 80}), why: "container port 0"},
		"protocol":       {pod: pod(nil, corev1.ContainerPort{HostPort: 80, ContainerPort: 80, Protocol: "ICMP"}), why: `protocol "ICMP"`},
		"no address":     {pod: pod(nil, corev1.ContainerPort{HostPort: 80, ContainerPort: 80, HostIP: "localhost"}), why: "is not an address"},
		"zone":           {pod: pod(nil, corev1.ContainerPort{HostPort: 80, ContainerPort: 80, HostIP: "fe80::1%eth0"}), why: "is not an address"},
		"at the bound":   {pod: pod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports = manyPorts(service.MaxHostPorts) }), ports: service.MaxHostPorts},
		"above bound":    {pod: pod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports = manyPorts(service.MaxHostPorts + 2) }), ports: service.MaxHostPorts, why: "the last 2 host ports"},
		"init container": {pod: pod(func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers; p.Spec.Containers = nil }, web)},
	} {
		ports, refused := service.HostPorts(tc.pod)
		if len(ports) != tc.ports || len(refused) > 1 || (len(refused) == 0) != (tc.why == "") || !strings.Contains(fmt.Sprint(refused), tc.why) {
			t.Errorf("%s: %d ports, refused %v; want %d, %q", name, len(ports), refused, tc.ports, tc.why)
		}

		if p := service.NewPod(tc.pod, nil); (p != nil) != (tc.ports > 0 || tc.why != "") {
			t.Errorf("%s: NewPod returns %v", name, p)
		}
	}
}

func manyPorts(n int) (out []corev1.ContainerPort) {
	for i := range n {
		out = append(out, corev1.ContainerPort{HostPort: int32(1 + i), ContainerPort: 80})
	}

	return out
}

// TestOwner_Precedes: the older object gets a frontend; of the same age the smaller kind, namespace
// and name.
func TestOwner_Precedes(t *testing.T) {
	s := func(kind service.Kind, namespace, name string) service.Owner {
		return service.Owner{Key: service.Key{Kind: kind, Namespace: namespace, Name: name}}
	}
	younger := s(service.KindService, "a", "a")
	younger.Created = younger.Created.Add(1)

	order := []service.Owner{s(service.KindService, "a", "b"), s(service.KindService, "b", "a"), s(service.KindPod, "a", "a"), younger}
	for i, a := range order {
		for j, b := range order {
			if got := a.Precedes(b); got != (i < j) {
				t.Errorf("%v precedes %v: %t", a, b, got)
			}
		}
	}

	if got := order[0].String() + ", " + order[2].String(); got != "Service a/b, Pod a/a" {
		t.Errorf("the keys read %s", got)
	}
}
