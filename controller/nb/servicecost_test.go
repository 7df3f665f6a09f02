package nb_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestServiceCost checks that the flows of a Service's units are not less than those that a real
// ovn-controller makes, and at most half more. Traffic policies leave endpoints out, which the units
// do not. A node port is a VIP for each address of each node, on every node: the units count one node
// with one address of each family (docs/services.md).
func TestServiceCost(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	node := ovn.StartController(t, "node1")
	ovn.AddChassis("node2")
	ovn.AddChassis("node3")
	db := open(t, ovn.Server)
	flows := func(nodes int, more ...runtime.Object) int {
		t.Helper()

		objects := append([]runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}}, more...)
		for n := range nodes {
			objects = append(objects, gatewayNode(1+n))
		}
		// The flows that a node has for any number of Services are not the Service's.
		objects = append(objects, costed("first", "46", 2, 0, tcpAndUDP, nodePorts, affine, announced("203.0.113.1", "2001:db8::1"), ranges("192.0.2.0/24", "2001:db8:1::/48"))...)

		c, err := reconcile.NewCluster(policyConfig(), objects...)
		if err != nil {
			t.Fatal(err)
		}

		commitAll(t, db, c)

		return node.Flows()
	}

	var many []string // ranges that share few prefixes
	for i := range 100 {
		many = append(many, fmt.Sprintf("%d.%d.%d.0/24", 11+i, (i*37)%256, (i*91)%256))
	}

	base := flows(1)

	for _, tc := range []struct {
		name     string
		families string
		ports    int
		change   []change
		policy   bool // leaves endpoints out
	}{
		{"cluster IP", "4", 1, nil, false},
		{"cluster IP", "6", 1, nil, false},
		{"cluster IPs", "46", 3, nil, false},
		{"UDP", "46", 3, []change{udp}, false},
		{"TCP and UDP", "46", 2, []change{tcpAndUDP}, false},
		{"affinity", "4", 1, []change{affine}, false},
		{"affinity", "46", 3, []change{affine}, false},
		{"affinity, UDP", "6", 3, []change{affine, udp}, false},
		{"external IP", "4", 1, []change{external("203.0.113.9")}, false},
		{"external IPs", "46", 3, []change{external("203.0.113.9", "203.0.113.10", "2001:db8::9")}, false},
		{"external IPs, affinity", "46", 3, []change{affine, external("203.0.113.9", "203.0.113.10", "2001:db8::9")}, false},
		{"node port", "4", 1, []change{nodePorts}, false},
		{"node port", "6", 1, []change{nodePorts}, false},
		{"node ports", "46", 3, []change{nodePorts}, false},
		{"node ports, UDP", "46", 3, []change{nodePorts, udp}, false},
		{"node ports, affinity", "46", 3, []change{nodePorts, affine}, false},
		{"node ports, policy Local", "46", 3, []change{nodePorts, externalLocal}, true},
		{"node ports and external IP, policy Local, affinity", "46", 3, []change{nodePorts, externalLocal, affine, external("203.0.113.9")}, true},
		{"node ports, TCP and UDP, policy Local", "46", 2, []change{tcpAndUDP, nodePorts, externalLocal}, true},
		{"internal policy Local", "46", 3, []change{internalLocal}, true},
		{"internal policy Local, affinity", "46", 3, []change{internalLocal, affine}, true},
		{"endpoints on hosts", "46", 3, nil, false},
		{"endpoints on hosts, affinity", "46", 3, []change{affine}, false},
		{"endpoints on hosts, node ports", "46", 3, []change{nodePorts}, false},
		{"endpoints on hosts, node ports, external IP, policy Local", "46", 3, []change{nodePorts, externalLocal, external("203.0.113.9")}, true},
		{"endpoints on hosts, node ports, affinity, external IP, policies Local", "46", 3, []change{nodePorts, affine, externalLocal, internalLocal, external("203.0.113.9")}, true},
		{"load balancer", "46", 3, []change{announced("203.0.113.9", "2001:db8::9")}, false},
		{"a source range", "4", 1, []change{announced("203.0.113.9"), ranges("198.51.100.0/24")}, false},
		{"source ranges", "46", 3, []change{announced("203.0.113.9", "203.0.113.10", "2001:db8::9"), ranges("10.0.0.0/8", "198.51.100.0/24", "2001:db8:2::/48")}, false},
		{"source ranges, two protocols", "4", 4, []change{tcpAndUDP, announced("203.0.113.9"), ranges("198.51.100.0/24")}, false},
		{"many source ranges", "4", 1, []change{announced("203.0.113.9"), ranges(many...)}, false},
		{"all source ranges", "4", 1, []change{announced("203.0.113.9"), ranges("0.0.0.0/0")}, false},
		{"source ranges, everything", "46", 3, []change{nodePorts, externalLocal, internalLocal, affine, announced("203.0.113.9", "2001:db8::9"), ranges("198.51.100.0/24", "2001:db8:2::/48")}, true},
	} {
		for _, endpoints := range []int{0, 1, 3} {
			objects := costed("s", tc.families, tc.ports, endpoints, tc.change...)
			if strings.Contains(tc.name, "hosts") {
				onHosts(objects)
			}

			got, want := flows(1, objects...)-base, flowsOf(t, objects)
			t.Logf("%s, IPv%s, %d endpoints: %d flows, units %d", tc.name, tc.families, endpoints, got, want)

			if got <= 0 || got > want || want > got*3/2 && !tc.policy {
				t.Errorf("%s, IPv%s, %d endpoints: ovn-controller makes %d flows, the units are %d", tc.name, tc.families, endpoints, got, want)
			}
		}
	}

	for _, families := range []string{"4", "6"} {
		objects := costed("s", families, 3, 0, nodePorts)
		one := flows(1, objects...) - base

		three := flows(3, objects...) - flows(3)
		if got, want := three-one, 2*3*4; got != want {
			t.Errorf("node ports, IPv%s: two more nodes make %d flows, want %d: the known limit has changed", families, got, want)
		}
	}
}

// flowsOf returns the flows of the Service's units.
func flowsOf(t *testing.T, objects []runtime.Object) int {
	t.Helper()

	cfg := service.Config{Pods: policyConfig().ClusterCIDRs, Join: policyConfig().JoinSubnets, ExternalIPs: policyConfig().ExternalIPs}

	var eps []*discoveryv1.EndpointSlice
	for _, o := range objects[1:] {
		eps = append(eps, o.(*discoveryv1.EndpointSlice))
	}

	s := service.New(cfg, objects[0].(*corev1.Service), eps)
	if s == nil || len(s.Refused) > 0 {
		t.Fatalf("the Service means %+v", s)
	}

	return s.Units().Flows
}

type change func(*corev1.ServiceSpec, *corev1.ServiceStatus)

// costed returns a Service with that many ports, and a slice with endpoints on node1 for each
// family, "4" or "6".
func costed(name, families string, ports, endpoints int, changes ...change) []runtime.Object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + i), Protocol: corev1.ProtocolTCP})
	}

	for _, c := range changes {
		c(&s.Spec, &s.Status)
	}

	out, last := []runtime.Object{s}, 10+len(name) // the two Services have different addresses

	for _, family := range families {
		at, address, ip := discoveryv1.AddressTypeIPv4, "10.244.1.%d", "10.96.0.%d"
		if family == '6' {
			at, address, ip = discoveryv1.AddressTypeIPv6, "fd00:10:244:1::%x", "fd00:10:96::%x"
		}

		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf(ip, last))

		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%s-%c", name, family), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: at,
		}
		for i := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf(address, 100+i)}, NodeName: new("node1")})
		}

		for i, p := range s.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(int32(8000 + i))})
		}

		out = append(out, slice)
	}

	for i := range s.Spec.Ports {
		if s.Spec.Type != corev1.ServiceTypeClusterIP {
			s.Spec.Ports[i].NodePort = int32(30000 + 100*len(name) + i)
		}
	}

	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type == corev1.ServiceTypeClusterIP {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer // without node ports
	}

	return out
}

// onHosts moves the first endpoint of each slice to the host of node1, and the others to addresses
// outside of the cluster.
func onHosts(objects []runtime.Object) {
	for _, o := range objects[1:] {
		slice := o.(*discoveryv1.EndpointSlice)

		addresses := []string{"172.30.0.11", "172.30.0.201", "172.30.0.202"}
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			addresses = []string{"fd00:172:30::11", "fd00:172:30::201", "fd00:172:30::202"}
		}

		for i := range slice.Endpoints {
			slice.Endpoints[i].Addresses = addresses[i : i+1]
		}
	}
}

func nodePorts(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	s.Type = corev1.ServiceTypeLoadBalancer
}

func affine(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	s.SessionAffinity = corev1.ServiceAffinityClientIP
}

func externalLocal(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func udp(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	for i := range s.Ports {
		s.Ports[i].Protocol = corev1.ProtocolUDP
	}
}

// tcpAndUDP has every other port of UDP.
func tcpAndUDP(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
	for i := 1; i < len(s.Ports); i += 2 {
		s.Ports[i].Protocol = corev1.ProtocolUDP
	}
}

func external(addresses ...string) change {
	return func(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) { s.ExternalIPs = addresses }
}

func announced(addresses ...string) change {
	return func(_ *corev1.ServiceSpec, st *corev1.ServiceStatus) {
		for _, a := range addresses {
			st.LoadBalancer.Ingress = append(st.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
	}
}

func ranges(texts ...string) change {
	return func(s *corev1.ServiceSpec, _ *corev1.ServiceStatus) {
		s.LoadBalancerSourceRanges = slices.Clone(texts)
	}
}

// gatewayNode returns a node with a gateway router.
func gatewayNode(n int) *corev1.Node {
	name := fmt.Sprint("node", n)
	cidrs := []string{fmt.Sprintf("172.30.0.1%d/24", n), fmt.Sprintf("fd00:172:30::1%d/64", n)}

	gateway := annotation.Gateway{Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:00:00:00:00:%02x", n), NodePorts: true}
	for _, c := range cidrs {
		gateway.Addresses = append(gateway.Addresses, netip.MustParsePrefix(c))
	}

	hosts, _ := json.Marshal(cidrs)

	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		annotation.NodeSubnets:   fmt.Sprintf(`{"default":["10.244.%d.0/24","fd00:10:244:%d::/64"]}`, n, n),
		annotation.NodeJoin:      fmt.Sprintf(`{"default":{"ipv4":"100.64.0.%d/16","ipv6":"fd98::%d/64"}}`, n+1, n+1),
		annotation.GatewayConfig: annotation.FormatGateway(gateway), annotation.ChassisID: name, annotation.HostCIDRs: string(hosts),
	}}}
}
