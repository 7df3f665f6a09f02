package service_test

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

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hostAddresses are kinds of addresses that a host can have. own marks those of this node.
var hostAddresses = []struct {
	name, address string
	own           bool
}{
	{"gateway", "172.30.0.11", true},
	{"gateway, IPv6", "fd00:172:30::11", true},
	{"secondary", "172.30.0.77", true},
	{"virtual, of the control plane", "172.31.9.1", true},
	{"further IPv6", "2001:db8::11", true},
	{"gateway of another node", "172.30.0.12", false},
	{"gateway of another node, IPv6", "fd00:172:30::12", false},
	{"secondary, of another node", "172.31.9.2", false},
	{"node without an agent", "172.30.0.13", false},
	{"node with broken annotations", "172.30.0.14", false},
	{"public address of a node", "203.0.113.13", false},
	{"tunnels of another node", "172.30.1.12", false},
}

// hostNodes returns node1, with the addresses of node1() and more, and other nodes.
func hostNodes() []*corev1.Node {
	agents := func(name string, n int, more ...string) *corev1.Node {
		cidrs := []string{fmt.Sprintf("172.30.0.1%d/24", n), fmt.Sprintf("fd00:172:30::1%d/64", n)}
		gateway := annotation.Gateway{
			Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + name, MAC: "02:00:00:00:00:01", Addresses: prefixes(cidrs...), NodePorts: true,
		}
		hosts, _ := json.Marshal(append(cidrs, more...))

		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			annotation.NodeSubnets:   fmt.Sprintf(`{"default":["10.244.%d.0/24","fd00:10:244:%d::/64"]}`, n, n),
			annotation.NodeJoin:      fmt.Sprintf(`{"default":{"ipv4":"100.64.0.%d/16","ipv6":"fd98::%d/64"}}`, n+1, n+1),
			annotation.GatewayConfig: annotation.FormatGateway(gateway), annotation.ChassisID: name, annotation.HostCIDRs: string(hosts),
		}}}
	}
	bare := func(name string, annotations map[string]string, addresses ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		for i, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP}[i], Address: a})
		}

		return n
	}
	tunnels := agents("node2", 2, "172.31.9.2/32")
	tunnels.Annotations[annotation.TunnelAddress] = "172.30.1.12"

	return []*corev1.Node{
		agents("node1", 1, "172.30.0.77/24", "172.31.9.1/32", "2001:db8::11/128"), tunnels,
		bare("node3", nil, "172.30.0.13", "203.0.113.13"),
		bare("node4", map[string]string{annotation.NodeSubnets: `{"default":["10.244.4.0/24"]}`, annotation.GatewayConfig: "{", annotation.HostCIDRs: "[}"}, "172.30.0.14"),
	}
}

// sides computes what the controller and the agent of node1 serve for the same objects.
type sides struct {
	t        *testing.T
	node     *service.Node
	nodes    []*corev1.Node
	external []netip.Prefix
	servers  model.ControlPlane // in the settings
	trust    bool               // EndpointSlices of the control plane
}

func newSides(t *testing.T) *sides {
	s := &sides{t: t, node: node1(), nodes: hostNodes(), external: prefixes("192.0.2.0/24")}
	s.node.Own = append(s.node.Own, addrs("172.31.9.1", "2001:db8::11", "10.244.1.2", "fd00:10:244:1::2")...)

	s.node.Addresses = append(s.node.Addresses, addrs("172.31.9.1", "2001:db8::11")...)
	for _, n := range s.nodes[1:] {
		s.node.Hosts = append(s.node.Hosts, annotation.TrustAll().HostAddresses(n)...)
	}

	slices.SortFunc(s.node.Hosts, netip.Addr.Compare)

	return s
}

// controller returns all VIPs with their backends, and the message of the Event.
func (s *sides) controller(objects ...any) (vips map[string]string, event string) {
	s.t.Helper()

	c, err := reconcile.NewCluster(plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: s.node.Cluster.Pods, ServiceCIDRs: s.node.Cluster.Services, JoinSubnets: s.node.Cluster.Join, ExternalIPs: s.external, TrustSlices: s.trust,
		SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
		Shares: model.Shares{Namespace: 131072}, // the agent's side asks no accounts
	})
	if err != nil {
		s.t.Fatal(err)
	}

	for _, n := range s.nodes {
		objects = append(objects, n)
	}

	c.Servers = func() model.ControlPlane { return s.servers }
	vips = map[string]string{}

	var key plan.Key

	for _, o := range objects {
		var err error

		switch o := o.(type) {
		case *corev1.Service:
			err, key = add(c.Stores[plan.KindService], o), plan.ServiceKey(o.Namespace, o.Name)
		case *discoveryv1.EndpointSlice:
			err = add(c.Stores[plan.KindEndpointSlice], o)
		case *corev1.Node:
			err = add(c.Stores[plan.KindNode], o)
		case *corev1.Pod:
			err, key = add(c.Stores[plan.KindPod], o), plan.PodKey(o.Namespace, o.Name)
		}

		if err != nil {
			s.t.Fatal(err)
		}
	}

	rows, planErr := plan.Rows(c, key)
	if planErr != nil {
		event = planErr.Error()
	}

	for _, row := range rows {
		if lb, ok := row.(plan.LoadBalancer); ok {
			for v, b := range lb.VIPs {
				vips[v] = b
			}
		}
	}

	return vips, event
}

func add(store plan.Store, o any) error { return store.(interface{ Add(any) error }).Add(o) }

// agent returns all frontends with their backends.
func (s *sides) agent(o model.Objects) map[string]string {
	s.node.Cluster.ExternalIPs, s.node.Cluster.ControlPlane = s.external, s.servers
	s.node.Cluster.TrustEndpointSlices = s.trust
	out := map[string]string{}

	if p := service.New(o.Meaning(s.node.Cluster), s.node); p != nil {
		for _, f := range p.Frontends {
			var to []string
			for _, b := range p.Groups[f.Group].Backends {
				to = append(to, b.String())
			}

			out[netip.AddrPortFrom(f.Key.Addr, f.Key.Port).String()] = strings.Join(to, ",")
		}
	}

	return out
}

func serviceAt(address string, port int32, proto corev1.Protocol, balancer bool) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}}
	svc.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:10:96::10"}

	svc.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: proto}}
	if balancer {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	} else {
		svc.Spec.ExternalIPs = []string{address}
	}

	return svc
}

// Neither controller nor agent serves a port by which the node is managed, on any host address, and
// an Event reports it. Other ports and protocols are served, where the settings allow external IPs
// at addresses of hosts.
func TestManagementPortsAreNotServed(t *testing.T) {
	s := newSides(t)
	s.external = prefixes("0.0.0.0/0", "::/0")

	for _, host := range hostAddresses {
		for _, balancer := range []bool{false, true} {
			for _, port := range append(keptNumbers(), 80) {
				for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					front := netip.AddrPortFrom(netip.MustParseAddr(host.address), port).String()
					svc := serviceAt(host.address, int32(port), proto, balancer)
					served := !slices.Contains(model.KeptPorts(), model.KeptPort{Protocol: proto, Number: port})

					vips, event := s.controller(svc)
					if _, ok := vips[front]; ok != served {
						t.Errorf("%s, load balancer's %t: %s/%s at the controller: served %t", host.name, balancer, front, proto, ok)
					}

					if told := strings.Contains(event, fmt.Sprintf("%s port %d of %s: it is the node's own", proto, port, host.address)); told == served {
						t.Errorf("%s: %s/%s: the Event says %q", host.name, front, proto, event)
					}

					if _, ok := s.agent(model.Objects{Service: svc})[front]; ok != served {
						t.Errorf("%s, load balancer's %t: %s/%s at the agent: served %t", host.name, balancer, front, proto, ok)
					}
				}
			}
		}
	}
}

// keptNumbers returns the numbers of all kept ports.
func keptNumbers() (out []uint16) {
	for _, p := range model.KeptPorts() {
		out = append(out, p.Number)
	}

	return out
}

// TestFrontendsAtControlPlane_areRefused checks that neither controller nor agent serves a frontend
// at an API server or a database, nor a kept port at their addresses, and that the Event says so.
func TestFrontendsAtControlPlane_areRefused(t *testing.T) {
	const none = ""

	s := newSides(t)
	s.external = prefixes("0.0.0.0/0", "::/0")
	s.servers = model.NewControlPlane(model.APIServer, []netip.AddrPort{
		netip.MustParseAddrPort("198.51.100.5:443"), netip.MustParseAddrPort("[2001:db8:5::5]:443"), netip.MustParseAddrPort("172.30.0.12:8443"),
		netip.MustParseAddrPort("10.96.0.10:443"), // a cluster IP outside of the configured networks
	}, nil).With(model.NewControlPlane(model.Database, []netip.AddrPort{netip.MustParseAddrPort("198.51.100.7:16641")}, nil))

	for _, tc := range []struct {
		address string
		port    int32
		proto   corev1.Protocol
		why     string
	}{
		{"198.51.100.5", 443, "TCP", "it is the API server's"},
		{"2001:db8:5::5", 443, "TCP", "it is the API server's"},
		{"172.30.0.12", 8443, "TCP", "it is the API server's"},
		{"198.51.100.7", 16641, "TCP", "it is that of an OVN database"},
		{"198.51.100.7", 22, "TCP", "the address is that of a server of the control plane"},
		{"198.51.100.5", 6443, "TCP", "the address is that of a server of the control plane"},
		{"198.51.100.5", 6081, "UDP", "the address is that of a server of the control plane"},
		{"198.51.100.5", 443, "UDP", none},
		{"198.51.100.5", 80, "TCP", none},
		{"198.51.100.7", 443, "TCP", none},
		{"198.51.100.6", 443, "TCP", none},
		{"172.30.0.11", 8443, "TCP", none},
	} {
		for _, balancer := range []bool{false, true} {
			front := netip.AddrPortFrom(netip.MustParseAddr(tc.address), uint16(tc.port)).String()
			svc := serviceAt(tc.address, tc.port, tc.proto, balancer)
			vips, event := s.controller(svc)
			_, controller := vips[front]

			_, agent := s.agent(model.Objects{Service: svc})[front]
			for name, got := range map[string]map[string]string{"controller": vips, "agent": s.agent(model.Objects{Service: svc})} {
				at := netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), uint16(tc.port)).String()
				if _, served := got[at]; !served {
					t.Errorf("the %s does not serve the cluster IP %s", name, at)
				}
			}

			if served := tc.why == none; controller != served || agent != served {
				t.Errorf("%s/%s, load balancer's %t: served by the controller %t, by the agent %t", front, tc.proto, balancer, controller, agent)
			}

			want := fmt.Sprintf("%s port %d of %s: %s", tc.proto, tc.port, tc.address, tc.why)
			if tc.why != none && !strings.Contains(event, want) || tc.why == none && event != "" {
				t.Errorf("%s/%s: the Event says %q, want %q", front, tc.proto, event, want)
			}
		}
	}
}

// TestNodePortsAtControlPlane_areRefused checks node ports and host ports on a node whose API
// server has the port at one address: this address does not serve it, and neither do the host's
// sockets. The node's other address and other nodes serve it.
func TestNodePortsAtControlPlane_areRefused(t *testing.T) {
	s := newSides(t)
	nodePort := serviceAt("192.0.2.1", 80, corev1.ProtocolTCP, true)
	nodePort.Spec.Ports[0].NodePort = 8443
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", Annotations: map[string]string{
		annotation.PodNetworks: `{"default":{"ip_addresses":["10.244.1.5/24","fd00:10:244:1::5/64"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1","fd00:10:244:1::1"]}}`,
	}}}
	pod.Spec.NodeName = "node1"
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 8443, ContainerPort: 80}}}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.5"}, {IP: "fd00:10:244:1::5"}}

	for _, tc := range []struct {
		server              string
		own, sockets, other bool // served at 172.30.0.11, for sockets of node1, at node2
	}{
		{"172.30.0.11:8443", false, false, true},
		{"172.30.0.12:8443", true, true, false},
		{"127.0.0.1:8443", true, false, true},
		{"172.30.0.11:8444", true, true, true},
		{"192.0.2.99:8443", true, true, true},
	} {
		s.servers = model.NewControlPlane(model.APIServer, []netip.AddrPort{netip.MustParseAddrPort(tc.server)}, nil)

		for name, o := range map[string]model.Objects{"node port": {Service: nodePort}, "host port": {Pod: pod}} {
			var vips map[string]string
			if o.Pod != nil {
				vips, _ = s.controller(o.Pod)
			} else {
				vips, _ = s.controller(o.Service)
			}

			agent := s.agent(o)
			check := func(where string, got map[string]string, front string, want bool) {
				if _, is := got[front]; is != want {
					t.Errorf("%s, API server at %s: the %s serves %s: %t", name, tc.server, where, front, is)
				}
			}
			check("controller", vips, "172.30.0.11:8443", tc.own)
			check("controller", vips, "172.30.0.77:8443", true)
			check("agent", agent, "172.30.0.11:8443", tc.own)
			check("agent", agent, "172.30.0.77:8443", true)
			check("agent", agent, "0.0.0.0:8443", tc.sockets)
			check("agent", agent, "[::]:8443", true)

			if o.Service != nil {
				check("controller", vips, "172.30.0.12:8443", tc.other)
			}
		}
	}
}

// TestExternalIPsAtHostsAreRefused checks that neither controller nor agent serves an external IP
// that is an address of a host and outside of the allowed ranges, and that the Event names the
// setting. Addresses of the load balancer are served: some announce addresses of nodes.
func TestExternalIPsAtHostsAreRefused(t *testing.T) {
	s := newSides(t)

	for _, host := range hostAddresses {
		external, balancer := serviceAt(host.address, 80, corev1.ProtocolTCP, false), serviceAt(host.address, 80, corev1.ProtocolTCP, true)
		both := balancer.DeepCopy()
		both.Spec.ExternalIPs = []string{host.address}
		a := netip.MustParseAddr(host.address)

		front, own, setting := netip.AddrPortFrom(a, 80).String(), netip.PrefixFrom(a, a.BitLen()).String(), "--allow-external-ips"
		for _, tc := range []struct {
			name, allowed string
			svc           *corev1.Service
			served, told  bool
		}{
			{"external IP", "", external, false, true},
			{"external IP, allowed", own, external, true, false},
			{"external IP, another allowed", "192.0.2.0/24", external, false, true},
			{"of a load balancer", "", balancer, true, false},
			{"of a load balancer, and external IP", "", both, true, true},
		} {
			if s.external = nil; tc.allowed != "" {
				s.external = prefixes(tc.allowed)
			}

			vips, event := s.controller(tc.svc)
			_, controller := vips[front]

			_, agent := s.agent(model.Objects{Service: tc.svc})[front]
			if controller != tc.served || agent != tc.served || strings.Contains(event, setting) != tc.told {
				t.Errorf("%s, %s: served by the controller %t, by the agent %t, Event %q", host.name, tc.name, controller, agent, event)
			}
		}
	}
}

// The same holds for pods' host ports at each address of their node, including loopback and
// link-local ones, and for node ports.
func TestManagementPortsAreNotHostPorts(t *testing.T) {
	s := newSides(t)

	for _, ip := range []string{"", "0.0.0.0", "::", "172.30.0.11", "172.30.0.77", "172.31.9.1", "2001:db8::11", "127.0.0.1", "127.0.0.2", "::1", "fe80::11", "fe80::99", "10.244.1.2"} {
		for _, port := range append(model.KeptPorts(), model.KeptPort{Protocol: corev1.ProtocolTCP, Number: 8080}) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", Annotations: map[string]string{
				annotation.PodNetworks: `{"default":{"ip_addresses":["10.244.1.5/24","fd00:10:244:1::5/64"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1","fd00:10:244:1::1"]}}`,
			}}}
			pod.Spec.NodeName = "node1"
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostIP: ip, HostPort: int32(port.Number), ContainerPort: 80, Protocol: port.Protocol}}}}
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.5"}, {IP: "fd00:10:244:1::5"}}

			served := port.Number == 8080 && ip != "fe80::99" // which the host does not have
			if got := s.agent(model.Objects{Pod: pod}); (len(got) > 0) != served {
				t.Errorf("host port %v at %q: the agent serves %v", port, ip, got)
			}

			if vips, event := s.controller(pod); !served && len(vips) > 0 {
				t.Errorf("host port %v at %q: the controller serves %v, %s", port, ip, vips, event)
			}
		}
	}

	for _, port := range append(model.KeptPorts(), model.KeptPort{Protocol: corev1.ProtocolTCP, Number: 30080}) {
		svc := serviceAt("192.0.2.1", 80, port.Protocol, false)
		svc.Spec.Ports[0].NodePort = int32(port.Number)

		vips, _ := s.controller(svc)
		for _, got := range []map[string]string{vips, s.agent(model.Objects{Service: svc})} {
			served := false
			for front := range got {
				served = served || netip.MustParseAddrPort(front).Port() == port.Number
			}

			if served != (port.Number == 30080) {
				t.Errorf("node port %v is served %t: %v", port, served, got)
			}
		}
	}
}

// External IPs outside of the ranges are not served, and an Event names the setting. Without ranges,
// no external IP is served. Load balancer addresses are exempt.
func TestExternalIPsOutsideRangesAreRefused(t *testing.T) {
	s := newSides(t)
	for _, tc := range []struct {
		allowed, address string
		balancer, served bool
	}{
		{"", "198.51.100.1", false, false},
		{"", "198.51.100.1", true, true},
		{"", "2001:db8:9::1", false, false},
		{"203.0.113.0/24", "198.51.100.1", false, false},
		{"203.0.113.0/24", "198.51.100.1", true, true},
		{"203.0.113.0/24", "203.0.113.9", false, true},
		{"203.0.113.0/24", "172.30.0.77", false, false},
		{"203.0.113.0/24", "2001:db8:9::1", false, false},
		{"203.0.113.0/24,2001:db8:9::/64", "2001:db8:9::1", false, true},
		{"2001:db8:9::/64", "8.8.8.8", false, false},
	} {
		if s.external = nil; tc.allowed != "" {
			s.external = prefixes(strings.Split(tc.allowed, ",")...)
		}

		front := netip.AddrPortFrom(netip.MustParseAddr(tc.address), 80).String()
		svc := serviceAt(tc.address, 80, corev1.ProtocolTCP, tc.balancer)
		vips, event := s.controller(svc)
		_, controller := vips[front]

		_, agent := s.agent(model.Objects{Service: svc})[front]
		if controller != tc.served || agent != tc.served || (event == "") != tc.served {
			t.Errorf("%q, load balancer's %t: %s: served by the controller %t, by the agent %t, Event %q", tc.allowed, tc.balancer, tc.address, controller, agent, event)
		}
	}
}
