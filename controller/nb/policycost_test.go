package nb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestPolicyCost checks that the flows that the plan expects of a policy are those that a real
// ovn-controller makes, on a node with one of the policy's pods. Values that are part of others are
// the only difference: OVN makes no flows of them.
func TestPolicyCost(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	node := ovn.StartController(t, "node1")
	db := open(t, ovn.Server)
	isolated := policyOf("isolated", nil, nil)
	objects := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{
			annotation.NodeSubnets: `{"default": ["10.244.1.0/24", "fd00:10:244:1::/64"]}`, annotation.ChassisID: "node1",
		}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"name": "ns"}}},
		podOf("web", 3, corev1.ContainerPort{Name: "http", ContainerPort: 8080}),
		podOf("peer", 4, corev1.ContainerPort{Name: "http", ContainerPort: 8081}),
		podOf("other", 5, corev1.ContainerPort{Name: "http", ContainerPort: 8082}),
		isolated,
	}
	flows := func(more ...runtime.Object) (measured, in, out int) {
		t.Helper()

		c, err := reconcile.NewCluster(policyConfig(), append(more, objects...)...)
		if err != nil {
			t.Fatal(err)
		}

		commitAll(t, db, c)
		in, out = c.PolicyFlows("ns", "p")

		return node.Flows(), in, out
	}
	flows()
	node.Bind("ns_web", "uid-web", "web")

	base, _, _ := flows()

	pods := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "peer"}}}
	everywhere := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "ns"}}, PodSelector: pods.PodSelector}

	var scattered []networkingv1.NetworkPolicyPort
	for i := range 40 {
		scattered = append(scattered, portOf(corev1.ProtocolTCP, 1001+i*700, 1001+i*700+37*i%600))
	}

	for _, tc := range []struct {
		name    string
		peers   []networkingv1.NetworkPolicyPeer
		ports   []networkingv1.NetworkPolicyPort
		overlap bool // OVN makes fewer flows
	}{
		{"all", nil, nil, false},
		{"port", nil, portsOf(80), false},
		{"ports of two protocols", nil, append(portsOf(80, 90, 100), portOf(corev1.ProtocolUDP, 53, 0), portOf(corev1.ProtocolUDP, 55, 0)), false},
		{"protocol", nil, []networkingv1.NetworkPolicyPort{{}}, false},
		{"range", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 1000, 1999)}, false},
		{"range of one port", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 5, 5)}, false},
		{"all ports as a range", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 1, 65535)}, false},
		{"range to the last port", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolSCTP, 1024, 65535)}, false},
		{"range to the last port but one", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 1, 65534)}, false},
		{"last port as a range", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 65535, 65535)}, false},
		{"ranges", nil, scattered, false},
		{"overlapping ranges", nil, []networkingv1.NetworkPolicyPort{portOf(corev1.ProtocolTCP, 1000, 1999), portOf(corev1.ProtocolTCP, 1500, 2500)}, true},
		{"port in a range", nil, append(portsOf(1001), portOf(corev1.ProtocolTCP, 1000, 1999)), true},
		{"pods", []networkingv1.NetworkPolicyPeer{pods}, nil, false},
		{"pods and ports", []networkingv1.NetworkPolicyPeer{pods}, portsOf(80, 82, 84), false},
		{"block", []networkingv1.NetworkPolicyPeer{blockOf("192.0.2.0/24")}, portsOf(80, 82, 84), false},
		{"blocks", []networkingv1.NetworkPolicyPeer{blockOf("192.0.2.0/24"), blockOf("198.51.100.0/24"), blockOf("2001:db8::/64")}, nil, false},
		{"blocks and a port", []networkingv1.NetworkPolicyPeer{blockOf("192.0.2.0/24"), blockOf("198.51.100.0/24")}, portsOf(80), false},
		{"blocks and ports", []networkingv1.NetworkPolicyPeer{blockOf("192.0.2.0/24"), blockOf("198.51.100.0/24"), blockOf("2001:db8::/64")}, portsOf(80, 82, 84), false},
		{"blocks and ranges", []networkingv1.NetworkPolicyPeer{blockOf("192.0.2.0/24"), blockOf("198.51.100.0/24")}, scattered, false},
		{"block within another one", []networkingv1.NetworkPolicyPeer{blockOf("10.0.0.0/8"), blockOf("10.1.0.0/16")}, nil, true},
		{"exceptions", []networkingv1.NetworkPolicyPeer{blockOf("0.0.0.0/0", "10.0.0.0/8", "192.168.0.0/16"), blockOf("::/0", "2001:db8::/32")}, portsOf(80, 443), false},
		{"everywhere", []networkingv1.NetworkPolicyPeer{blockOf("0.0.0.0/0"), blockOf("::/0")}, portsOf(80, 443), false},
		{"pods, a block and ports", []networkingv1.NetworkPolicyPeer{pods, blockOf("192.0.2.0/24")}, portsOf(80, 82, 84), false},
		{"named port", []networkingv1.NetworkPolicyPeer{pods}, []networkingv1.NetworkPolicyPort{namedOf("http")}, false},
		{"named port of all", nil, []networkingv1.NetworkPolicyPort{namedOf("http")}, false},
		{"named port and a number", []networkingv1.NetworkPolicyPeer{everywhere, blockOf("192.0.2.0/24"), blockOf("198.51.100.0/24")}, append(portsOf(80, 82), namedOf("http")), false},
	} {
		p := policyOf("p", tc.peers, tc.ports)
		// A second rule with the same peers has flows of its own.
		second := portsOf(20000)
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: tc.peers, Ports: second})
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: tc.peers, Ports: second})
		now, in, out := flows(p)
		got, want := now-base, in+out
		t.Logf("%s: %d flows, expected %d", tc.name, got, want)

		if got > want || !tc.overlap && got != want || in == 0 || out == 0 {
			t.Errorf("%s: ovn-controller makes %d flows, the plan expects %d of ingress and %d of egress", tc.name, got, in, out)
		}
	}

	attack := policyOf("p", nil, nil)
	attack.Spec.Ingress = nil

	for rule := range 38 {
		var ports []networkingv1.NetworkPolicyPort
		for i := range 900 {
			ports = append(ports, portOf(corev1.ProtocolTCP, 1+70*i+rule, 34+70*i+rule))
		}

		attack.Spec.Egress = append(attack.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: ports})
	}

	if now, _, out := flows(attack); now != base || out < 500_000 {
		t.Errorf("a policy that the plan closes, with %d flows, has %d flows", out, now-base)
	}
}

func commitAll(t *testing.T, db *nb.DB, c *plan.Cluster) {
	t.Helper()
	commitWithout(t, db, c, nil)
}

// commitWithout commits the rows of the cluster, except those that are left out.
func commitWithout(t *testing.T, db *nb.DB, c *plan.Cluster, isLeftOut func(plan.Row) bool) {
	t.Helper()

	want := map[plan.Key][]plan.Row{}

	owners, _, err := db.Owners()
	if err != nil {
		t.Fatal(err)
	}

	for _, k := range owners {
		want[k] = nil
	}

	for _, k := range c.Keys() {
		var closed *plan.Unserved
		if want[k], err = plan.Rows(c, k); err != nil && !errors.As(err, &closed) {
			t.Fatal(err)
		}

		if isLeftOut != nil {
			want[k] = slices.DeleteFunc(want[k], isLeftOut)
		}
	}

	commit(t, db, want)
}

func policyOf(name string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
	if name != "isolated" {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	}

	return p
}

func podOf(name string, last int, port corev1.ContainerPort) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}, Annotations: map[string]string{
			annotation.PodNetworks: fmt.Sprintf(`{"default":{"ip_addresses":["10.244.1.%d/24","fd00:10:244:1::%d/64"],"mac_address":"0a:58:0a:f4:01:%02x"}}`, last, last, last),
		}},
		Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{port}}}},
	}
}

func blockOf(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func portsOf(numbers ...int) (out []networkingv1.NetworkPolicyPort) {
	for _, n := range numbers {
		out = append(out, portOf(corev1.ProtocolTCP, n, 0))
	}

	return out
}

// portOf returns a range, or one port if last is 0.
func portOf(protocol corev1.Protocol, first, last int) networkingv1.NetworkPolicyPort {
	port := intstr.FromInt32(int32(first))
	out := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}

	if last > 0 {
		end := int32(last)
		out.EndPort = &end
	}

	return out
}

func namedOf(name string) networkingv1.NetworkPolicyPort {
	port := intstr.FromString(name)
	return networkingv1.NetworkPolicyPort{Port: &port}
}
