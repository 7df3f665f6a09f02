package churntest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// putService creates or changes a Service. As in the other methods below, the namespace and the
// name are random.
func (c *Churn) putService() {
	i := c.Rand.IntN(c.Names)
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace(), Name: fmt.Sprint("svc", i)}}
	putOrEdit(c.API, s, func(s *corev1.Service) { c.describeService(s, i) })
}

// describeService fills a Service with random values. i is the number in its name.
func (c *Churn) describeService(s *corev1.Service, i int) {
	// Up to 250 names, no two Services have the same cluster IP: a real API server would refuse the
	// second one. With more names, IPv4 addresses are used again, for tests with a stand-in.
	namespace := int(s.Namespace[2] - '0') // N of nsN, see Churn.namespace
	ip4 := fmt.Sprintf("10.96.%d.%d", namespace, 2+i%250)
	ip6 := fmt.Sprintf("fd00:10:96::%x", (namespace+1)<<12|i)
	s.Spec = corev1.ServiceSpec{
		Type: pick(c, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
			corev1.ServiceTypeLoadBalancer),
	}
	s.Spec.ClusterIPs = pick(c, []string{ip4, ip6}, []string{ip4}, []string{ip6})
	single, dual := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack

	s.Spec.IPFamilyPolicy = &single
	switch {
	case c.maybe(8):
		s.Spec.ClusterIPs, s.Spec.Type = []string{corev1.ClusterIPNone}, corev1.ServiceTypeClusterIP
	case len(s.Spec.ClusterIPs) == 2:
		s.Spec.IPFamilyPolicy = &dual
	}

	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]

	for j := range 1 + c.Rand.IntN(2) {
		port := corev1.ServicePort{
			Name:     fmt.Sprint("p", j),
			Port:     int32(80 + j),
			Protocol: pick(c, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
		}
		if s.Spec.Type != corev1.ServiceTypeClusterIP {
			// It may be another Service's, which a real API server refuses.
			port.NodePort = int32(30000 + c.Rand.IntN(200))
		}

		s.Spec.Ports = append(s.Spec.Ports, port)
	}

	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		s.Spec.ExternalTrafficPolicy = pick(c, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)
	}

	internal := pick(c, corev1.ServiceInternalTrafficPolicyCluster,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	s.Spec.InternalTrafficPolicy = &internal
	s.Spec.SessionAffinity = pick(c, corev1.ServiceAffinityNone, corev1.ServiceAffinityNone,
		corev1.ServiceAffinityClientIP)

	if c.maybe(20) {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", c.Rand.IntN(30))}
	}

	s.Status = corev1.ServiceStatus{}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && c.maybe(80) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: fmt.Sprintf("198.51.100.%d", c.Rand.IntN(100))},
		}
		if c.maybe(30) {
			s.Spec.LoadBalancerSourceRanges = pick(c, []string{"10.0.0.0/8"},
				[]string{"192.0.2.0/24", "fd00::/8"}, []string{"0.0.0.0/0"})
		}
	}
}

// removeService deletes an existing Service, but not its EndpointSlices.
func (c *Churn) removeService() { c.API.Remove(Services, c.exists(Services)) }

// putSlice creates or changes the EndpointSlice of a Service for IPv4 or IPv6. The Service need not
// exist.
func (c *Churn) putSlice() {
	namespace, service := c.namespace(), c.name("svc")
	four := c.maybe(65)

	name, family := service+"-4", discoveryv1.AddressTypeIPv4
	if !four {
		name, family = service+"-6", discoveryv1.AddressTypeIPv6
	}

	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			Labels:    map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: family,
	}
	putOrEdit(c.API, s, func(s *discoveryv1.EndpointSlice) { c.describeSlice(s, four) })
}

// describeSlice fills a slice with random endpoints, of IPv4 (four) or IPv6.
func (c *Churn) describeSlice(s *discoveryv1.EndpointSlice, four bool) {
	s.Endpoints, s.Ports = nil, nil

	for range c.Rand.IntN(4) {
		node := c.node()
		ready, serving, terminating := c.maybe(85), c.maybe(90), c.maybe(10)

		addr := fmt.Sprintf("10.128.%d.%d", c.Rand.IntN(2), c.Rand.IntN(256))
		switch {
		case !four:
			text := fmt.Sprintf("fd00:10:128:%x::%x", c.Rand.IntN(8), 3+c.Rand.IntN(60))
			addr = netip.MustParseAddr(text).String()
		case c.maybe(10):
			addr = fmt.Sprintf("172.30.0.%d", 10+c.Rand.IntN(c.Nodes)) // a node's own
		}

		ep := discoveryv1.Endpoint{
			Addresses: []string{addr},
			Conditions: discoveryv1.EndpointConditions{
				Ready:       &ready,
				Serving:     &serving,
				Terminating: &terminating,
			},
		}
		if c.maybe(90) {
			ep.NodeName = &node
		}

		s.Endpoints = append(s.Endpoints, ep)
	}

	for j := range 2 {
		name, port, proto := fmt.Sprint("p", j), int32(8080+j), corev1.ProtocolTCP
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &proto})
	}
}

func (c *Churn) removeSlice() { c.API.Remove(EndpointSlices, c.exists(EndpointSlices)) }

// putNamespace creates a Namespace, or gives an existing one other labels, by which NetworkPolicies
// select it.
func (c *Churn) putNamespace() {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace()}}
	putOrEdit(c.API, n, func(n *corev1.Namespace) { n.Labels = c.labels() })
}

func (c *Churn) removeNamespace() { c.API.Remove(Namespaces, c.exists(Namespaces)) }

// putPolicy creates or changes a NetworkPolicy. It draws from about a quarter of Names, so it
// changes existing policies more often.
func (c *Churn) putPolicy() {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace(),
			Name:      fmt.Sprint("policy", c.Rand.IntN(c.Names/4+1)),
		},
	}
	putOrEdit(c.API, p, func(p *networkingv1.NetworkPolicy) { p.Spec = c.policySpec() })
}

func (c *Churn) removePolicy() { c.API.Remove(Policies, c.exists(Policies)) }

// selector returns a random selector of pods or namespaces. It may be empty, which selects all.
func (c *Churn) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if c.maybe(60) {
		s.MatchLabels = map[string]string{pick(c, "app", "tier"): pick(c, "a", "b", "c")}
	}

	if c.maybe(30) {
		requirement := pick(c,
			metav1.LabelSelectorRequirement{
				Key:      "tier",
				Operator: metav1.LabelSelectorOpIn,
				Values:   []string{"a", "b"},
			},
			metav1.LabelSelectorRequirement{
				Key:      "tier",
				Operator: metav1.LabelSelectorOpNotIn,
				Values:   []string{"c"},
			},
			metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist},
		)
		s.MatchExpressions = []metav1.LabelSelectorRequirement{requirement}
	}

	return s
}

// policySpec returns a random policy with up to two ingress rules and one egress rule. Its types
// need not match its rules.
func (c *Churn) policySpec() networkingv1.NetworkPolicySpec {
	spec := networkingv1.NetworkPolicySpec{PodSelector: *c.selector()}
	spec.PolicyTypes = pick(c, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"},
		[]networkingv1.PolicyType{"Ingress", "Egress"})

	for range c.Rand.IntN(3) {
		spec.Ingress = append(spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: c.peers(), Ports: c.policyPorts()})
	}

	for range c.Rand.IntN(2) {
		spec.Egress = append(spec.Egress,
			networkingv1.NetworkPolicyEgressRule{To: c.peers(), Ports: c.policyPorts()})
	}

	return spec
}

// peers returns up to two random peers of a rule. Without peers, the rule is for all.
func (c *Churn) peers() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for range c.Rand.IntN(3) {
		out = append(out, pick(c,
			networkingv1.NetworkPolicyPeer{PodSelector: c.selector()},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: c.selector()},
			networkingv1.NetworkPolicyPeer{PodSelector: c.selector(), NamespaceSelector: c.selector()},
			networkingv1.NetworkPolicyPeer{
				IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}},
			},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "fd00::/16"}},
		))
	}

	return out
}

// policyPorts returns up to two random ports of a rule. Without ports, the rule is for all.
func (c *Churn) policyPorts() []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort

	tcp, number, name, end := corev1.ProtocolTCP, intstr.FromInt32(80), intstr.FromString("http"), int32(90)
	for range c.Rand.IntN(3) {
		out = append(out, pick(c,
			networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &number},
			networkingv1.NetworkPolicyPort{Port: &name},
			networkingv1.NetworkPolicyPort{Port: &number, EndPort: &end},
			networkingv1.NetworkPolicyPort{Protocol: &tcp},
		))
	}

	return out
}
