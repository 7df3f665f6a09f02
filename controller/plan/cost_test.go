package plan_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// hostile makes objects with a field of size n. At size large the object has about 1.5 MB, which is
// the limit of the API server.
var hostile = []struct {
	name  string
	large int
	make  func(n int) []k8sruntime.Object
}{
	{"policy: exceptions, IPv4", 60_000, func(n int) []k8sruntime.Object { return policyWith(block("0.0.0.0/0", each(n, scattered4))) }},
	{"policy: exceptions, IPv6", 40_000, func(n int) []k8sruntime.Object { return policyWith(block("::/0", each(n, scattered6))) }},
	{"policy: exceptions inside of each other", 40_000, func(n int) []k8sruntime.Object {
		return policyWith(block("2001:db8::/32", each(n, func(i int) string { return fmt.Sprintf("2001:db8:%x::/%d", i&0xff, 48+i%60) })))
	}},
	{"policy: blocks", 40_000, func(n int) []k8sruntime.Object {
		var peers []networkingv1.NetworkPolicyPeer
		for i := range n {
			peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: scattered6(i)}})
		}

		return policyWith(peers...)
	}},
	{"policy: selectors", 20_000, func(n int) []k8sruntime.Object { return policyWith(selectors(n, 1)...) }},
	{"policy: labels of a selector", 40_000, func(n int) []k8sruntime.Object { return policyWith(selectors(1, n)...) }},
	{"policy: values of a requirement", 60_000, func(n int) []k8sruntime.Object {
		s := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: each(n, paddedValue)}}}
		return policyWith(networkingv1.NetworkPolicyPeer{PodSelector: s})
	}},
	{"policy: labels of the subject", 40_000, func(n int) []k8sruntime.Object {
		objects := policyWith()
		objects[0].(*networkingv1.NetworkPolicy).Spec.PodSelector = *selectors(1, n)[0].PodSelector

		return objects
	}},
	{"policy: rules", 20_000, func(n int) []k8sruntime.Object {
		p := policyWith(block("10.0.0.0/8", nil))[0].(*networkingv1.NetworkPolicy)
		for range n {
			p.Spec.Egress = append(p.Spec.Egress, p.Spec.Egress[0])
		}

		return []k8sruntime.Object{p}
	}},
	{"policy: ports", 50_000, func(n int) []k8sruntime.Object {
		return policyPorts(n, func(i int) networkingv1.NetworkPolicyPort {
			first := intstr.FromInt32(int32(1 + i%60000))
			last := first.IntVal + 7

			return networkingv1.NetworkPolicyPort{Port: &first, EndPort: &last}
		})
	}},
	{"policy: named ports and selectors", 20_000, func(n int) []k8sruntime.Object {
		objects := policyPorts(n, func(i int) networkingv1.NetworkPolicyPort {
			name := intstr.FromString(paddedValue(i))
			return networkingv1.NetworkPolicyPort{Port: &name}
		})
		objects[0].(*networkingv1.NetworkPolicy).Spec.Egress[0].To = selectors(n, 1)

		return objects
	}},
	{"policy: numbers of a named port", 3_000, func(n int) []k8sruntime.Object {
		objects := policyPorts(1, func(int) networkingv1.NetworkPolicyPort {
			name := intstr.FromString("web")
			return networkingv1.NetworkPolicyPort{Port: &name}
		})
		p := objects[0].(*networkingv1.NetworkPolicy)
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{block("::/0", each(30, scattered6))}, Ports: p.Spec.Egress[0].Ports}}
		p.Spec.Egress, p.Spec.PolicyTypes = nil, nil

		for i := range n {
			pod := hostilePod(i)
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(1 + i)}}}}
			objects = append(objects, pod)
		}

		return objects
	}},
	{"pod: labels", 40_000, func(n int) []k8sruntime.Object {
		pod := hostilePod(1)
		pod.Labels = selectors(1, n)[0].PodSelector.MatchLabels

		return append(policyWith(selectors(10, 1)...), pod)
	}},
	{"pod: host ports", 60_000, func(n int) []k8sruntime.Object {
		var out []k8sruntime.Object

		for i := range 2 {
			pod := hostilePod(1 + i)

			pod.Spec.Containers = []corev1.Container{{}}
			for p := range n {
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: int32(1 + p), ContainerPort: 80})
			}

			out = append(out, pod)
		}

		return append(out, simNode(0))
	}},
	{"pod: annotation", 15_000, func(n int) []k8sruntime.Object {
		pod := hostilePod(1)
		pod.Annotations[annotation.PodNetworks] = fmt.Sprintf(`{"default":{"ip_addresses":["10.128.0.5/24"%s],"mac_address":"0a:58:0a:80:00:05"}}`,
			strings.Join(each(n, func(i int) string { return `,"` + scattered6(i) + `"` }), ""))

		return []k8sruntime.Object{pod, simNode(0)}
	}},
	{"namespace: labels", 40_000, func(n int) []k8sruntime.Object {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: selectors(1, n)[0].PodSelector.MatchLabels}}
		return append(policyWith(selectors(10, 1)...), ns, hostilePod(1))
	}},
	{"namespace: annotation", 250_000, func(n int) []k8sruntime.Object {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: map[string]string{plan.ACLLogging: `{"deny":"` + strings.Repeat("x", n) + `"}`}}}
		return append(policyWith(selectors(10, 1)...), ns)
	}},
	{"service: ports", 30_000, func(n int) []k8sruntime.Object { return serviceWith(n, 0, 0, 10) }},
	{"service: external IPs", 60_000, func(n int) []k8sruntime.Object { return serviceWith(1, n, 0, 10) }},
	{"service: ports and external IPs", 20_000, func(n int) []k8sruntime.Object { return serviceWith(n, n, 0, 10) }},
	{"service: load balancer addresses", 30_000, func(n int) []k8sruntime.Object { return serviceWith(10, 0, n, 10) }},
	{"service: source ranges", 40_000, func(n int) []k8sruntime.Object {
		objects := serviceWith(10, 0, 2, 10)
		objects[0].(*corev1.Service).Spec.LoadBalancerSourceRanges = each(n, scattered6)

		return objects
	}},
	{"service: source ranges without an announced address", 40_000, func(n int) []k8sruntime.Object {
		objects := serviceWith(10, 0, 0, 10)
		objects[0].(*corev1.Service).Spec.LoadBalancerSourceRanges = each(n, scattered6)

		return objects
	}},
	{"service: two with the same fronts", 10_000, func(n int) []k8sruntime.Object {
		twin := serviceWith(n, n, 0, 10)
		twin[0].(*corev1.Service).Name = "twin"

		return append(twin[:1], serviceWith(n, n, 0, 10)...)
	}},
	{"slices: endpoints", 100_000, func(n int) []k8sruntime.Object { return serviceWith(1, 0, 0, n) }},
	{"slices: ports and endpoints", 20_000, func(n int) []k8sruntime.Object { return serviceWith(n, 0, 0, n) }},
	{"slices: ports, external IPs and endpoints", 20_000, func(n int) []k8sruntime.Object { return serviceWith(n, n, 0, n) }},
	{"slices: ports of a slice", 20_000, func(n int) []k8sruntime.Object { return serviceWith(n, 0, 0, 1) }},
	{"slices: refused endpoints", 50_000, func(n int) []k8sruntime.Object {
		objects := serviceWith(10, 0, 0, n)
		for _, o := range objects[1:] {
			for i := range o.(*discoveryv1.EndpointSlice).Endpoints {
				o.(*discoveryv1.EndpointSlice).Endpoints[i].Addresses = []string{fmt.Sprintf("169.254.%d.%d", i>>8&255, i&255)}
			}
		}

		return objects
	}},
}

func each(n int, f func(int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = f(i)
	}

	return out
}

func paddedValue(i int) string { return fmt.Sprintf("v%06d", i) }

// scattered4 and scattered6 return single addresses that are far from each other.
func scattered4(i int) string {
	x := uint32(i+1) * 2654435761
	return fmt.Sprintf("%d.%d.%d.%d/32", 1+x>>24%200, x>>16&255, x>>8&255, x&255)
}

func scattered6(i int) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("2001:%x:%x:%x::1/128", x>>48, x>>32&0xffff, x>>16&0xffff)
}

func block(cidr string, except []string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func selectors(n, labels int) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer

	for i := range n {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for l := range labels {
			s.MatchLabels[paddedValue(i*labels+l)] = "x"
		}

		out = append(out, networkingv1.NetworkPolicyPeer{PodSelector: s})
	}

	return out
}

func policyWith(to ...networkingv1.NetworkPolicyPeer) []k8sruntime.Object {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: to}}

	return []k8sruntime.Object{p}
}

func policyPorts(n int, port func(int) networkingv1.NetworkPolicyPort) []k8sruntime.Object {
	objects := policyWith(block("10.0.0.0/8", nil))

	rule := &objects[0].(*networkingv1.NetworkPolicy).Spec.Egress[0]
	for i := range n {
		rule.Ports = append(rule.Ports, port(i))
	}

	return objects
}

func hostilePod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod", i), Annotations: map[string]string{
			annotation.PodNetworks: fmt.Sprintf(`{"default":{"ip_addresses":["10.128.%d.%d/16"],"mac_address":"0a:58:0a:80:00:05"}}`, i>>8, i&255),
		}},
		Spec: corev1.PodSpec{NodeName: "node0"},
	}
}

// serviceWith returns a service with these numbers of ports, external IPs, load balancer addresses
// and endpoints, and its slices of 1,000 endpoints.
func serviceWith(ports, external, ingress, endpoints int) []k8sruntime.Object {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	svc.Spec.Type, svc.Spec.ClusterIPs = corev1.ServiceTypeLoadBalancer, []string{"10.96.0.10", "fd00:10:96::10"}
	addr := func(f func(int) string) func(int) string {
		return func(i int) string { return netip.MustParsePrefix(f(i)).Addr().String() }
	}

	svc.Spec.ExternalIPs = each(external, addr(scattered6))
	for _, ip := range each(ingress, addr(scattered6)) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}

	var of []discoveryv1.EndpointPort

	for i := range ports {
		name, number := paddedValue(i), int32(1+i%60000)
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Port: number})
		of = append(of, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}

	objects := []k8sruntime.Object{svc}

	for first := 0; first < endpoints; first += 1000 {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("s", first), Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: of,
		}
		for i := first; i < min(first+1000, endpoints); i++ {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&255, i&255)}})
		}

		objects = append(objects, s)
	}

	return objects
}

// planned plans all keys and the keys affected by an event of each object. It returns the size of
// all rows in bytes. There is one more pod, because policies without pods cost nothing.
func planned(tb testing.TB, objects []k8sruntime.Object) (rows int) {
	tb.Helper()

	one := hostilePod(0)
	one.Name = "one"

	c := simCluster(tb, append(slices.Clip(objects), one)...)
	for _, o := range objects {
		plan.Affected(c, nil, o)
	}

	for _, k := range c.Keys() {
		out, _ := plan.Rows(c, k)
		rows += plan.Size(out)
	}

	return rows
}

// work returns the bytes that planning allocates. They grow with the work of the planner.
func work(tb testing.TB, objects []k8sruntime.Object) (allocated uint64, rows int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	rows = planned(tb, objects)

	runtime.ReadMemStats(&after)

	return after.TotalAlloc - before.TotalAlloc, rows
}

// TestCostGrowth checks that twice the size of any field costs at most about twice as much.
func TestCostGrowth(t *testing.T) {
	for _, tc := range hostile {
		t.Run(tc.name, func(t *testing.T) {
			n := min(tc.large/4, 400)
			one, _ := work(t, tc.make(n))
			two, _ := work(t, tc.make(2*n))
			t.Logf("%d: %d kB, %d: %d kB", n, one>>10, 2*n, two>>10)

			if float64(two) > 2.8*float64(one) {
				t.Errorf("planning %d allocates %d kB, %d %d kB: more than 2.8 times as much", n, one>>10, 2*n, two>>10)
			}
		})
	}
}

// TestCostBound checks that the largest object that the API server accepts costs a bounded amount
// of work and gives rows of a bounded size.
func TestCostBound(t *testing.T) {
	const mostRows, mostWork = 20 << 20, 400 << 20

	for _, tc := range hostile {
		t.Run(tc.name, func(t *testing.T) {
			allocated, rows := work(t, tc.make(tc.large))
			t.Logf("allocates %d kB, rows have %d kB", allocated>>10, rows>>10)

			if rows > mostRows || allocated > mostWork {
				t.Errorf("planning allocates %d MB, rows have %d MB: want at most %d and %d", allocated>>20, rows>>20, mostWork>>20, mostRows>>20)
			}
		})
	}
}

// BenchmarkCost plans the largest object of each kind.
func BenchmarkCost(b *testing.B) {
	for _, tc := range hostile {
		b.Run(strings.ReplaceAll(tc.name, " ", "_"), func(b *testing.B) {
			objects := tc.make(tc.large)
			for b.Loop() {
				planned(b, objects)
			}
		})
	}
}
