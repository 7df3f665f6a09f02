package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// BenchmarkServices plans 1,000 services of each kind, with ten endpoints each, on 3 and on 500
// nodes. It reports the time per service.
func BenchmarkServices(b *testing.B) {
	const count = 1000

	for _, kind := range []string{"ClusterIP", "NodePort", "Local"} {
		for _, nodes := range []int{3, 500} {
			b.Run(fmt.Sprintf("%s/nodes=%d", kind, nodes), func(b *testing.B) {
				var objects []runtime.Object
				for i := range nodes {
					objects = append(objects, simNode(i))
				}

				for i := range count {
					objects = append(objects, simService(i, kind), simSlice(i, nodes, 10))
				}

				c := simCluster(b, objects...)
				for b.Loop() {
					for i := range count {
						if _, err := plan.Rows(c, plan.ServiceKey("ns", simName(i))); err != nil {
							b.Fatal(err)
						}
					}
				}

				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*count), "µs/service")
			})
		}
	}
}

func simCluster(tb testing.TB, objects ...runtime.Object) *plan.Cluster {
	tb.Helper()

	c, err := reconcile.NewCluster(plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:244::/48")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		ExternalIPs:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
		Shares: services.Shares{Namespace: 131072, FlowsPerNode: 1 << 20}, // all Services are in one namespace
	}, objects...)
	if err != nil {
		tb.Fatal(err)
	}

	return c
}

func simName(i int) string { return fmt.Sprint("service", i) }

// simNode returns a node with all annotations that a gateway needs, in both families.
func simNode(i int) *corev1.Node {
	v4, v6 := fmt.Sprintf("172.30.%d.%d", i>>8, i&255), fmt.Sprintf("fd00:172:30::%x", i+1)

	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("node", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone", i%3)},
		Annotations: map[string]string{
			"k8s.ovn.org/node-id":                         fmt.Sprint(i + 1),
			"k8s.ovn.org/node-subnets":                    fmt.Sprintf(`{"default": ["10.%d.%d.0/24", "fd00:10:244:%x::/64"]}`, 128+i>>8, i&255, i),
			"k8s.ovn.org/node-gateway-router-lrp-ifaddrs": fmt.Sprintf(`{"default": {"ipv4": "100.64.%d.%d/16", "ipv6": "fd98::%x/64"}}`, i>>8, i&255, i+2),
			"k8s.ovn.org/l3-gateway-config":               fmt.Sprintf(`{"default": {"mode": "shared", "interface-id": "breth0_node%d", "mac-address": "02:00:00:00:00:01", "ip-addresses": ["%s/16", "%s/64"], "node-port-enable": "true", "vlan-id": "0"}}`, i, v4, v6),
			"k8s.ovn.org/node-chassis-id":                 fmt.Sprint("node", i),
			"k8s.ovn.org/host-cidrs":                      fmt.Sprintf(`["%s/16", "%s/64"]`, v4, v6),
			"k8s.ovn.org/node-mgmt-port-mac-addresses":    `{"default": "0a:58:0a:f4:01:02"}`,
			"ovn-ebpf.io/snat-port-range":                 "49152-65535",
		},
	}}
}

// simService returns a service of the kind ClusterIP, NodePort or Local. Local is a NodePort that
// only nodes with endpoints serve.
func simService(i int, kind string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: simName(i)},
		Spec: corev1.ServiceSpec{
			ClusterIPs: []string{fmt.Sprintf("10.96.%d.%d", i>>8, i&255), fmt.Sprintf("fd00:10:96::%x", i+1)},
			Ports:      []corev1.ServicePort{{Port: 80}},
		},
	}
	if kind != "ClusterIP" {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(30000 + i)
	}

	if kind == "Local" {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}

	return s
}

// simSlice returns a slice with endpoints on consecutive nodes.
func simSlice(i, nodes, endpoints int) *discoveryv1.EndpointSlice {
	number, name := int32(8080), ""

	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: simName(i), Labels: map[string]string{discoveryv1.LabelServiceName: simName(i)}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
	}
	for e := range endpoints {
		at := (i + e) % nodes
		node := fmt.Sprint("node", at)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+at>>8, at&255, 10+e)}, NodeName: &node,
		})
	}

	return s
}
