package campaign

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// svc creates a Service, replaces it, or deletes it.
func (g *generator) svc(name string) call {
	dual := corev1.IPFamilyPolicyPreferDualStack

	s := &corev1.Service{ObjectMeta: g.meta(name), Spec: corev1.ServiceSpec{
		Type:           pick(g, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer),
		IPFamilyPolicy: &dual, PublishNotReadyAddresses: g.r.IntN(2) == 0,
		InternalTrafficPolicy: ptr(g, corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster),
		SessionAffinity:       corev1.ServiceAffinityNone,
	}}
	if g.r.IntN(2) == 0 {
		s.Spec.Selector = map[string]string{"app": pick(g, "web", "guarded")}
	}

	for i := range pick(g, 1, 2, 5) {
		s.Spec.Ports = append(s.Spec.Ports, g.servicePort(fmt.Sprint("p", i), s.Spec.Type))
	}

	for range pick(g, 0, 1, 3, 10) {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, g.external().String())
	}

	g.policies(s)
	g.special(s)

	return g.fresh(s)
}

func (g *generator) servicePort(name string, kind corev1.ServiceType) corev1.ServicePort {
	p := corev1.ServicePort{Name: name, Port: g.port(), TargetPort: intstr.FromInt32(g.port()), Protocol: g.protocol()}
	if kind != corev1.ServiceTypeClusterIP && g.r.IntN(3) == 0 {
		p.NodePort = pick[int32](g, nodePort, reservedPort, 30000, 32767, 30000+int32(g.r.IntN(2768)))
	}

	return p
}

// policies sets what of a Service decides who may come, and where to.
func (g *generator) policies(s *corev1.Service) {
	if g.r.IntN(2) == 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr[int32](g, 1, 86400, 10800)}}
	}

	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		return
	}

	s.Spec.ExternalTrafficPolicy = pick(g, corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster, "")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}

	s.Spec.LoadBalancerIP = g.external().String()
	for range pick(g, 0, 1, 3000) {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, g.prefix())
	}

	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = pick[int32](g, 0, nodePort, reservedPort, 30000+int32(g.r.IntN(2768)))
	}
}

// special makes some Services headless or external, or asks for a cluster IP.
func (g *generator) special(s *corev1.Service) {
	switch g.r.IntN(8) {
	case 0:
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: pick(g, "example.com", "kubernetes.default"), Ports: s.Spec.Ports, Selector: s.Spec.Selector}
	case 1:
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	case 2, 3:
		asked := netip.AddrFrom4([4]byte{10, 96, byte(g.r.IntN(256)), byte(g.r.IntN(256))}).String()
		if g.r.IntN(4) == 0 {
			asked = g.address().String()
		}

		s.Spec.ClusterIP, s.Spec.ClusterIPs = asked, []string{asked}
	}
}

// announce reports a Service's addresses, as a load balancer's controller does that believes
// spec.loadBalancerIP (kube-vip), or announces the nodes' addresses (k3s).
func (g *generator) announce(name string) call {
	atNodes, mode := g.r.IntN(2) == 0, ptr(g, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
	hosts := g.values.hosts

	return call{verb: report, object: named[corev1.Service](name), status: func(now metav1.Object) { balancerReports(now.(*corev1.Service), atNodes, mode, hosts) }}
}

// hostUDP are the ports of the hosts' UDP sockets that take packets from any peer.
var hostUDP = []int32{sshPort, hostPort, dnsPort, ntpPort}

// balancerReports sets the status of a Service. A load balancer that announces a node's address
// takes new connections and datagrams at the Service's ports from the node's own listeners, as
// docs/services.md says, except at kept ports. The probes connect to kept ports, but they have
// other UDP ports: these are not announced.
func balancerReports(s *corev1.Service, atNodes bool, mode *corev1.LoadBalancerIPMode, hosts []netip.Addr) {
	s.Status.LoadBalancer.Ingress = nil
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}

	asked := s.Spec.LoadBalancerIP
	if atNodes || slices.ContainsFunc(hosts, func(a netip.Addr) bool { return a.String() == asked }) {
		asked = ""

		taken := func(p corev1.ServicePort) bool {
			return p.Protocol == corev1.ProtocolUDP && slices.Contains(hostUDP, p.Port)
		}
		if slices.ContainsFunc(s.Spec.Ports, taken) {
			return
		}

		for _, a := range hosts {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: mode})
		}
	}

	if asked != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: asked, IPMode: mode}}
	}

	for i := range s.Status.LoadBalancer.Ingress {
		if s.Status.LoadBalancer.Ingress[i].IPMode == nil {
			vip := corev1.LoadBalancerIPModeVIP // the API server's default
			s.Status.LoadBalancer.Ingress[i].IPMode = &vip
		}
	}
}

// prefix returns a random prefix, usually small.
func (g *generator) prefix() string {
	if g.r.IntN(2) == 0 {
		return fmt.Sprintf("%d.%d.%d.%d/32", 1+g.r.IntN(220), g.r.IntN(256), g.r.IntN(256), g.r.IntN(256))
	}

	return fmt.Sprintf("2001:db8:%x:%x::%x/128", g.r.IntN(65536), g.r.IntN(65536), g.r.IntN(65536))
}

// slice creates an EndpointSlice of a Service, replaces it, or deletes it.
func (g *generator) slice(name string) call {
	s := &discoveryv1.EndpointSlice{ObjectMeta: g.meta(name), AddressType: pick(g, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)}

	s.Labels[discoveryv1.LabelServiceName] = pick(g, name, "web", "kubernetes", fmt.Sprintf("h%d", g.r.IntN(most)))
	if g.r.IntN(4) == 0 { // the control plane's slices are believed
		s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	}

	for i := range pick(g, 1, 1, 2, 100) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Port: ptr(g, g.port(), g.port()), Protocol: new(g.protocol())})
	}

	for range pick(g, 1, 3, 900) {
		s.Endpoints = append(s.Endpoints, g.endpoint(s.AddressType, len(s.Endpoints) > 50))
	}

	return g.fresh(s)
}

// endpoint returns an endpoint. The API server refuses slices with link-local ones, so most large
// slices have none.
func (g *generator) endpoint(of discoveryv1.AddressType, large bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Conditions: discoveryv1.EndpointConditions{Ready: ptr(g, true, true, false), Serving: ptr(g, true, false), Terminating: ptr(g, true, false)},
		NodeName:   ptr(g, "node1", "node2", "node3"),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pick(g, g.namespaces[0], victim), Name: pick(g, "a", "wired0")},
	}
	if g.r.IntN(3) == 0 {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(g, "zone1", "zone2")}}, ForNodes: []discoveryv1.ForNode{{Name: g.node()}}}
	}

	if of == discoveryv1.AddressTypeFQDN {
		e.Addresses = []string{pick(g, "example.com", "kubernetes.default.svc")}
		return e
	}

	a := g.address()
	for a.Is6() != (of == discoveryv1.AddressTypeIPv6) || large && a.IsLinkLocalUnicast() {
		a = g.address()
	}

	e.Addresses = []string{a.String()}

	return e
}

// largest is the number of ports of a Service that has as many as it may have.
const largest = service.MaxServicePorts

// manyPorts returns ports from the first one.
func manyPorts(n int, first int32, protocol corev1.Protocol) []corev1.ServicePort {
	var out []corev1.ServicePort
	for i := range int32(n) {
		out = append(out, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: first + i, Protocol: protocol, TargetPort: intstr.FromInt32(podPort)})
	}

	return out
}

// dualStack returns a Service of both families.
func dualStack(name string, kind corev1.ServiceType, ports []corev1.ServicePort, external ...netip.Addr) *corev1.Service {
	dual := corev1.IPFamilyPolicyPreferDualStack

	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind, IPFamilyPolicy: &dual, Ports: ports}}
	for _, a := range external {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
	}

	return s
}

// endpointsOf returns a slice of a Service with one endpoint, for each of the Service's ports.
func endpointsOf(s *corev1.Service, name string, a netip.Addr, port int32, node *string) *discoveryv1.EndpointSlice {
	yes := true

	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{a.String()}, NodeName: node, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
	}
	if a.Is6() {
		out.AddressType = discoveryv1.AddressTypeIPv6
	}

	for _, p := range s.Spec.Ports[:min(len(s.Spec.Ports), 100)] { // the API server's bound
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(port), Protocol: new(p.Protocol)})
	}

	return out
}
