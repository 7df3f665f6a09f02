package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Node ports of the services other than "web", and the host port of pod b.
const (
	hostNodePort      = 30081
	localNodePort     = 30082
	localHostNodePort = 30083
	vipNodePort       = 30084
	podHostPort       = 8088
)

// hostPorts of pods by name.
var hostPorts = map[string][]corev1.ContainerPort{"b": {
	{HostPort: podHostPort, ContainerPort: podPort, Protocol: corev1.ProtocolTCP},
	{HostPort: podHostPort, ContainerPort: podPort, Protocol: corev1.ProtocolUDP},
}}

// Addresses announced by a load balancer; the outside host routes them by node1.
func localVIP(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:10::10"))
}

func vip(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr("203.0.113.11"), netip.MustParseAddr("2001:db8:10::11"))
}

// addServices creates a service of each kind: web, with pods on both nodes; host, in node1's own
// network; local and localhost, for outside clients only on nodes with endpoints; vip, with an
// announced address; near, for pods on their own node only.
func (c *Cluster) addServices(ctx context.Context) error {
	for _, s := range c.serviceSpecs() {
		if err := c.addService(ctx, s); err != nil {
			return err
		}
	}

	return c.announce(ctx)
}

// renewServices recreates the services of a recreated pod.
func (c *Cluster) renewServices(ctx context.Context, pod string) error {
	for _, s := range c.serviceSpecs() {
		if !slices.Contains(s.Pods, c.Pods[pod]) {
			continue
		}

		if err := c.DelService(ctx, "default", s.Name); err != nil {
			return err
		}

		if err := c.addService(ctx, s); err != nil {
			return err
		}
	}

	return nil
}

func (c *Cluster) addService(ctx context.Context, s lab.ServiceSpec) error {
	svc, err := c.AddService(ctx, s)
	if err == nil {
		c.Services[s.Name] = svc
	}

	return err
}

func (c *Cluster) serviceSpecs() []lab.ServiceSpec {
	a, b, p := c.Pods["a"], c.Pods["b"], c.Pods["c"]
	local := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	near := func(s *corev1.ServiceSpec) {
		policy := corev1.ServiceInternalTrafficPolicyLocal
		s.InternalTrafficPolicy = &policy
	}

	const nodePorts, balanced = corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer

	return []lab.ServiceSpec{
		{Name: "web", Type: nodePorts, Ports: servicePorts(podPort, nodePort), Pods: []*lab.Pod{a, p}},
		{Name: "host", Type: nodePorts, Ports: servicePorts(hostPort, hostNodePort), Hosts: []*lab.Node{c.Node(1)}},
		{Name: "local", Type: balanced, Ports: servicePorts(podPort, localNodePort), Pods: []*lab.Pod{b}, Change: local, Ingress: []netip.Addr{localVIP(false), localVIP(true)}},
		{Name: "localhost", Type: nodePorts, Ports: servicePorts(hostPort, localHostNodePort), Hosts: []*lab.Node{c.Node(1)}, Change: local},
		{Name: "vip", Type: balanced, Ports: servicePorts(podPort, vipNodePort), Pods: []*lab.Pod{a, p}, Ingress: []netip.Addr{vip(false), vip(true)}},
		{Name: "near", Ports: servicePorts(podPort, 0), Pods: []*lab.Pod{b, p}, Change: near},
	}
}

// announce adds routes to the announced addresses on the outside host.
func (c *Cluster) announce(ctx context.Context) error {
	for _, to := range []func(bool) netip.Addr{localVIP, vip} {
		for _, v6 := range []bool{false, true} {
			target := netip.PrefixFrom(to(v6), to(v6).BitLen())
			if _, err := c.Exec(ctx, "ext", "ip", "route", "replace", target.String(), "via", c.gateway(1)(v6).String()); err != nil {
				return fmt.Errorf("announce %s: %w", target, err)
			}
		}
	}

	return nil
}

// servicePorts returns one port, TCP and UDP, with a node port unless it is 0.
func servicePorts(target, node int32) []corev1.ServicePort {
	ports := []corev1.ServicePort{}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		ports = append(ports, corev1.ServicePort{
			Name: strings.ToLower(string(protocol)), Protocol: protocol,
			Port: servicePort, TargetPort: intstr.FromInt32(target), NodePort: node,
		})
	}

	return ports
}

// cluster returns the cluster IP of a service by family.
func (c *Cluster) cluster(name string) func(bool) netip.Addr {
	return func(v6 bool) netip.Addr {
		for _, ip := range c.Services[name].Spec.ClusterIPs {
			if a := netip.MustParseAddr(ip); a.Is6() == v6 {
				return a
			}
		}

		return netip.Addr{}
	}
}

// ovn returns the source address that a host sees for traffic through its own gateway router.
func ovn(v6 bool) netip.Addr { return masquerade.Of(!v6).OVN }

// hairpin returns the client addresses that a host sees for traffic through its own gateway router
// if both share an address, or else nil, which is not checked.
func (c *Cluster) hairpin() func(bool) []netip.Addr {
	if c.local || c.layout == dedicated {
		return nil
	}

	return only(ovn)
}

// servicePaths lists the paths to services from all sources.
func (c *Cluster) servicePaths() []*Path {
	ns := func(node string) map[string]Class { return map[string]Class{node: NorthSouth} }

	return []*Path{
		{Name: "outside to a host behind its own NodePort", From: "ext", To: c.gateway(1), Port: hostNodePort, Server: "node1", Client: c.hairpin(), Class: ns("node1")},
		{Name: "outside to a host behind another's NodePort", From: "ext", To: c.gateway(2), Port: hostNodePort, Server: "node1", Class: ns("node2")},
		{Name: "another host to a host behind its own NodePort", From: "node2", To: c.gateway(1), Port: hostNodePort, Server: "node1", Client: c.hairpin(), Class: map[string]Class{"node2": Management, "node1": NorthSouth}},
		{Name: "outside to a local NodePort", From: "ext", To: c.gateway(1), Port: localNodePort, Server: "b", Client: only(outside), Class: ns("node1")},
		{Name: "outside to an announced address", From: "ext", To: vip, Port: servicePort, Server: "a,c", Class: ns("node1")},
		{Name: "outside to a local announced address", From: "ext", To: localVIP, Port: servicePort, Server: "b", Client: only(outside), Class: ns("node1")},
		{Name: "outside to a host port", From: "ext", To: c.gateway(1), Port: podHostPort, Server: "b", Client: only(outside), Class: ns("node1")},
		{Name: "pod to cluster IP", From: host("b"), To: c.cluster("web"), Port: servicePort, Server: "a,c", Client: only(c.pod("b"))},
		{Name: "pod to itself by cluster IP", From: host("b"), To: c.cluster("local"), Port: servicePort, Server: "b"},
		{Name: "pod to cluster IP of its own node", From: host("a"), To: c.cluster("near"), Port: servicePort, Server: "b", Client: only(c.pod("a"))},
		{Name: "pod to its host by cluster IP", From: host("a"), To: c.cluster("host"), Port: servicePort, Server: "node1", Client: only(c.pod("a"))},
		{Name: "pod to another host by cluster IP", From: host("c"), To: c.cluster("host"), Port: servicePort, Server: "node1", Client: only(c.gateway(2)), SNAT: true, Class: map[string]Class{"node2": NorthSouth, "node1": Management}},
		{Name: "pod to a NodePort of its own node", From: host("a"), To: c.node(1), Port: nodePort, Server: "a,c"},
		{Name: "pod to a NodePort of another node", From: host("a"), To: c.node(2), Port: nodePort, Server: "a,c"},
		{Name: "pod to a local NodePort of its own node", From: host("a"), To: c.node(1), Port: localNodePort, Server: "b", Client: only(c.pod("a"))},
		{Name: "pod to its host behind a NodePort", From: host("a"), To: c.node(1), Port: hostNodePort, Server: "node1", Client: only(c.pod("a"))},
		{Name: "pod to an announced address", From: host("c"), To: localVIP, Port: servicePort, Server: "b", Client: only(c.pod("c"))},
		{Name: "pod to a host port", From: host("c"), To: c.node(1), Port: podHostPort, Server: "b", Client: only(c.pod("c"))},
		{Name: "host to cluster IP", From: "node1", To: c.cluster("web"), Port: servicePort, Server: "a,c"},
		{Name: "host to its own NodePort", From: "node1", To: c.node(1), Port: nodePort, Server: "a,c"},
		{Name: "host to another's NodePort", From: "node1", To: c.gateway(2), Port: nodePort, Server: "a,c", Class: map[string]Class{"node1": Management, "node2": NorthSouth}},
		{Name: "host to an announced address", From: "node1", To: vip, Port: servicePort, Server: "a,c"},
		{Name: "host to a host port", From: "node1", To: c.node(1), Port: podHostPort, Server: "b"},
		{Name: "host to itself by cluster IP", From: "node1", To: c.cluster("host"), Port: servicePort, Server: "node1"},
	}
}
