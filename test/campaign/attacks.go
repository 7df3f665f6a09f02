package campaign

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// attack is a known attack. Its steps are lists of calls; an empty one leaves time, in which random
// steps are made.
type attack struct {
	name  string
	steps func() [][]call
}

// unanswered is an address of no network of the lab.
var unanswered = netip.MustParseAddr("203.0.113.99")

// doorPort and forgedPort are the NodePorts behind which false endpoints must not open ssh.
const doorPort, forgedPort = 30022, 30023

// tunnelPort is the NodePort behind which a false endpoint must not lead to a node's tunnels, which
// are at genevePort.
const tunnelPort, genevePort = 30024, 6081

// attacks returns the chosen attacks.
func (g *generator) attacks() []attack {
	all := []attack{
		{"attack: external IPs of nodes", g.externalAtNodes},
		{"attack: external IPs of the API server", g.externalAtServers},
		{"attack: a load balancer at nodes' addresses", g.balancerAtNodes},
		{"attack: host ports", g.hostPorts},
		{"attack: NodePorts", g.nodePorts},
		{"attack: a slice names a server outside", g.namesServer},
		{"attack: a slice opens ssh", g.opensSSH},
		{"attack: a slice of the control plane is forged", g.forgesSlice},
		{"attack: a slice names a tunnel", g.namesTunnel},
		{"attack: many frontends", g.manyFrontends},
		{"attack: a small Service grows", g.growingService},
		{"attack: policies with many ports", g.manyPolicyPorts},
		{"attack: policies with many selectors", g.manySelectors},
		{"attack: labels change", g.changingLabels},
	}

	return slices.DeleteFunc(all, func(a attack) bool { return g.only != nil && !g.only.MatchString(a.name) })
}

// each returns a step per object: it creates objects, leaves some time, and removes them.
func (g *generator) each(pause int, objects ...metav1.Object) (out [][]call) {
	for _, o := range objects {
		out = append(out, []call{{verb: create, object: o}})
	}

	out = append(out, make([][]call, pause)...)
	for _, o := range objects {
		out = append(out, removeAll(o))
	}

	return out
}

// externalAtNodes: 16 Services of 1,024 ports each ask for all addresses of nodes. Their ports
// include those of the hosts' listeners, connections and UDP sockets.
func (g *generator) externalAtNodes() [][]call {
	var objects []metav1.Object

	for i, first := range []int32{1, 6400, 7424, 10000, 30000, 31024, 40000, 60000} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			s := dualStack(fmt.Sprintf("node-%d-%s", i, map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[protocol]),
				corev1.ServiceTypeClusterIP, manyPorts(largest, first, protocol), g.values.hosts...)
			s.Spec.Selector = map[string]string{"app": "web"}
			objects = append(objects, s)
		}
	}

	return g.each(15, objects...)
}

// externalAtServers: a Service without endpoints asks for the addresses of the API server and of OVN's
// databases, which are no node's, with their ports. It would refuse all connections of the hosts.
func (g *generator) externalAtServers() [][]call {
	var ports []corev1.ServicePort
	for _, port := range append(databasePorts(), apiPort) {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprint("p", port), Port: port, TargetPort: intstr.FromInt32(podPort)})
	}

	return g.each(20, dualStack("servers", corev1.ServiceTypeClusterIP, ports, g.values.hosts[4:]...))
}

// databasePorts returns the ports of OVN's databases.
func databasePorts() []int32 {
	return []int32{northPort, southPort, northRaft, southRaft, southPortForController}
}

// balancerAtNodes: a load balancer announces nodes' addresses, with ports of the hosts' listeners
// and connections, and of OVN's databases.
func (g *generator) balancerAtNodes() [][]call {
	var ports []corev1.ServicePort

	wanted := append(databasePorts(), sshPort, servicePort, 443, hostPort, boundPort, outsidePort, kubeletPort,
		apiPort, ephemeralPort, reservedPort)
	for _, port := range wanted {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			if protocol == corev1.ProtocolTCP || !slices.Contains(hostUDP, port) { // see balancerReports
				ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("p%d-%c", port, protocol[0]|0x20), Port: port, Protocol: protocol, TargetPort: intstr.FromInt32(podPort)})
			}
		}
	}

	s := dualStack("balancer", corev1.ServiceTypeLoadBalancer, ports)
	out := g.each(20, s, endpointsOf(s, "balancer", g.victim(), podPort, nil))
	announced := call{verb: report, object: named[corev1.Service](s.Name), status: func(now metav1.Object) {
		balancerReports(now.(*corev1.Service), true, nil, g.values.hosts)
	}}

	return slices.Insert(out, 2, []call{announced})
}

// victim returns the IPv4 address of a pod of the victim.
func (g *generator) victim() netip.Addr {
	i := slices.IndexFunc(g.values.used, func(a netip.Addr) bool {
		return a.Is4() && slices.ContainsFunc(slices.Concat(g.values.subnets...), func(s netip.Prefix) bool { return s.Contains(a) })
	})

	return g.values.used[max(i, 0)]
}

// hostPorts: running pods on both nodes ask for ports of the hosts' sockets and connections, of the
// programs' own health, and of OVN's databases. They ask for those of servers at loopback addresses
// without a host IP, and with these addresses.
func (g *generator) hostPorts() [][]call {
	var (
		objects []metav1.Object
		running [][]call
	)

	no := false

	wanted := append(databasePorts(), sshPort, dnsPort, ntpPort, 443, apiPort, outsidePort, hostPort, boundPort,
		kubeletPort, nodePort, reservedPort, ephemeralPort, controllerPort, agentPort, healthPort, schedulerPort, managerPort)

	for i, node := range []string{"node1", "node2"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ports", i)}, Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: &no}}
		c := corev1.Container{Name: "c", Image: "none"}

		for _, port := range wanted {
			for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
				c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: podPort, HostPort: port, Protocol: protocol})
			}
		}

		for _, s := range atLoopback {
			protocol := corev1.ProtocolTCP
			if s.kind == "query" {
				protocol = corev1.ProtocolUDP
			}

			c.Ports = append(c.Ports, corev1.ContainerPort{
				ContainerPort: podPort, HostPort: int32(s.at.Port()), HostIP: s.at.Addr().String(), Protocol: protocol,
			})
		}

		p.Spec.Containers = []corev1.Container{c}
		objects = append(objects, p)
		running = append(running, nil, []call{{verb: report, object: named[corev1.Pod](p.Name), status: func(now metav1.Object) {
			kubeletReports(now.(*corev1.Pod), corev1.PodRunning, g.values.hosts)
		}}})
	}

	return slices.Insert(g.each(20, objects...), len(objects), running...)
}

// nodePorts: Services take NodePorts from which a host has connections.
func (g *generator) nodePorts() [][]call {
	var objects []metav1.Object

	for i, port := range []int32{reservedPort, reservedPort + 1, 30000} {
		var ports []corev1.ServicePort
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("%c", protocol[0]|0x20), Port: 80, NodePort: port, Protocol: protocol, TargetPort: intstr.FromInt32(podPort)})
		}

		s := dualStack(fmt.Sprint("taken", i), corev1.ServiceTypeNodePort, ports)
		if i == 1 {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}

		objects = append(objects, s)
	}

	return g.each(15, objects...)
}

// namesServer: a slice names a server outside, like that of NTP, and is deleted. The hosts' own UDP
// sockets to it must stay.
func (g *generator) namesServer() (out [][]call) {
	s := dualStack("ntp", corev1.ServiceTypeClusterIP, []corev1.ServicePort{{Name: "ntp", Port: ntpPort, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(outsidePort)}})

	out = append(out, []call{{verb: create, object: s}})
	for range 2 {
		out = append(out, g.each(10, endpointsOf(s, "ntp4", outside(false), outsidePort, nil), endpointsOf(s, "ntp6", outside(true), outsidePort, nil))...)
		out = append(out, make([][]call, 5)...)
	}

	return append(out, removeAll(s))
}

// opensSSH: with externalTrafficPolicy Local, a slice says that an address which no host has is on
// a node, with port 22. The NodePort must not lead to the node's sshd.
func (g *generator) opensSSH() [][]call {
	s := dualStack("door", corev1.ServiceTypeNodePort, []corev1.ServicePort{{Name: "ssh", Port: sshPort, NodePort: doorPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(sshPort)}})
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	node := "node1"

	return g.each(30, s, endpointsOf(s, "door4", unanswered, sshPort, &node), endpointsOf(s, "door6", netip.MustParseAddr("2001:db8:10::99"), sshPort, &node))
}

// forgesSlice: slices of a Service with a selector claim to be the control plane's, and name the
// sshd of node1. They are written again, with a change, about five times a second. The lab has no
// admission policy, and no controller that corrects them. The NodePort must not lead to that sshd.
func (g *generator) forgesSlice() [][]call {
	s := dualStack("forged", corev1.ServiceTypeNodePort, []corev1.ServicePort{{Name: "ssh", Port: sshPort, NodePort: forgedPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(sshPort)}})
	s.Spec.Selector = map[string]string{"app": "forged"}

	write := func(how verb, node *string) (calls []call) {
		for i, a := range g.values.hosts[:2] { // those of node1
			slice := endpointsOf(s, fmt.Sprint("forged", i), a, sshPort, node)
			slice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
			calls = append(calls, call{verb: how, object: slice})
		}

		return calls
	}

	out := [][]call{append([]call{{verb: create, object: s}}, write(create, nil)...)}
	for i := range 30 {
		out = append(out, write(replace, new(fmt.Sprint("node", 1+i%2))), nil) // at each second step of an attack
	}

	return append(out, append(removeAll(s), removeAll(named[discoveryv1.EndpointSlice]("forged0"), named[discoveryv1.EndpointSlice]("forged1"))...))
}

// namesTunnel: slices name the tunnels of node2, once as a tenant's and once as the control plane's.
// Through the NodePort of another node, a client outside must not reach them: its datagrams would
// have that node's address as source.
func (g *generator) namesTunnel() (out [][]call) {
	for _, manager := range []string{"tenant", "endpointslice-controller.k8s.io"} {
		s := dualStack("tunnel", corev1.ServiceTypeNodePort, []corev1.ServicePort{{Name: "geneve", Port: genevePort, NodePort: tunnelPort, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(genevePort)}})
		s.Spec.Selector = map[string]string{"app": "tunnel"}

		objects := []metav1.Object{s}
		for i, a := range g.values.hosts[2:4] { // those of node2
			slice := endpointsOf(s, fmt.Sprint("tunnel", i), a, genevePort, new("node2"))
			slice.Labels[discoveryv1.LabelManagedBy] = manager
			objects = append(objects, slice)
		}

		out = append(out, g.each(15, objects...)...)
	}

	return out
}

// manyFrontends: 34 Services have 7,168 frontends each, at external IPs outside the lab's networks. One
// of them fits into the namespace's budget. With one more address, none would.
func (g *generator) manyFrontends() [][]call {
	var objects []metav1.Object

	for i := range byte(34) {
		var external []netip.Addr
		for a := range byte(5) {
			external = append(external, netip.AddrFrom4([4]byte{203, 0, 113 + i, 1 + a}))
		}

		objects = append(objects, dualStack(fmt.Sprint("wide", i), corev1.ServiceTypeClusterIP, manyPorts(largest, 1+1024*int32(i), corev1.ProtocolTCP), external...))
	}

	return g.each(20, objects...)
}

// growingService: a Service of one port is later updated to as many frontends as a namespace may have,
// for clients of one node only.
func (g *generator) growingService() [][]call {
	var external []netip.Addr
	for i := range byte(64) {
		external = append(external, netip.AddrFrom4([4]byte{203, 0, 112, i}))
	}

	grown := func(ports int, external ...netip.Addr) *corev1.Service {
		s := dualStack("grown", corev1.ServiceTypeLoadBalancer, manyPorts(ports, 1, corev1.ProtocolTCP), external...)
		s.Spec.AllocateLoadBalancerNodePorts = new(bool)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Selector = map[string]string{"app": "web"}

		return s
	}

	return slices.Insert(g.each(10, grown(1)), 5, []call{{verb: replace, object: grown(124, external...)}})
}

// manySelectors: policies select pods of all namespaces by many labels. The first ones have no pods,
// the next four are as many as the bounds of a namespace permit, and the others are beyond them.
func (g *generator) manySelectors() [][]call {
	everywhere := &metav1.LabelSelector{}
	none, few, many := absentPolicies(g.namespaces[0], 10, 256, "none", everywhere), absentPolicies(g.namespaces[0], 4, 32, "web", everywhere), absentPolicies(g.namespaces[0], 4, 256, "web", everywhere)

	var objects []metav1.Object

	for name, policies := range [][]*networkingv1.NetworkPolicy{none, few, many} {
		for _, p := range policies {
			p.Name = fmt.Sprint(p.Name, "-", name)
			objects = append(objects, p)
		}
	}

	return g.each(20, objects...)
}

// changingLabels: policies select pods of their namespace by many labels, and labels of the pods
// change.
func (g *generator) changingLabels() [][]call {
	var objects []metav1.Object
	for _, p := range absentPolicies(g.namespaces[0], 4, 256, "web", nil) {
		objects = append(objects, p)
	}

	var changes [][]call

	for i := range 60 {
		value := "null"
		if i/max(1, g.values.wired)%2 == 0 {
			value = `"x"`
		}

		changes = append(changes, []call{{
			verb: patch, object: named[corev1.Pod](fmt.Sprint("wired", i%max(1, g.values.wired))), patch: fmt.Appendf(nil, `{"metadata": {"labels": {"flip": %s}}}`, value),
		}})
	}

	return slices.Insert(g.each(0, objects...), len(objects), changes...)
}

// manyPolicyPorts: one policy has 38 rules of 900 ranges of ports, others are many.
func (g *generator) manyPolicyPorts() [][]call {
	objects := []metav1.Object{portPolicy("ranges", 38, 900)}
	for i := range 20 {
		objects = append(objects, portPolicy(fmt.Sprint("ranges", i), 10, 100))
	}

	all := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "ranges-open"}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}}

	return g.each(20, append(objects, all)...)
}
