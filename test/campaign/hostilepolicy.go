package campaign

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policy creates a policy, possibly with many rules, replaces it, or deletes it.
func (g *generator) policy(name string) call {
	p := &networkingv1.NetworkPolicy{ObjectMeta: g.meta(name), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: *g.selector(),
		PolicyTypes: pick(g, nil, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}),
	}}
	for range pick(g, 0, 1, 1, 2) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: g.peers(), Ports: g.policyPorts()})
	}

	for range pick(g, 0, 1, 1, 2) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: g.peers(), Ports: g.policyPorts()})
	}

	return g.fresh(p)
}

func (g *generator) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range pick(g, 1, 2, 300) {
		out = append(out, g.peer())
	}

	return out
}

func (g *generator) peer() networkingv1.NetworkPolicyPeer {
	everywhere := &metav1.LabelSelector{}

	switch g.r.IntN(4) {
	case 0:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: pick(g, everywhere, g.selector(), g.selector()), PodSelector: g.selector()}
	case 1:
		b, n := &networkingv1.IPBlock{CIDR: "::/0"}, pick(g, 0, 2, 4000)
		if g.serial%10 != 0 {
			n = min(n, 100)
		}

		for range n {
			b.Except = append(b.Except, fmt.Sprintf("2001:db8:%x:%x::%x/128", g.r.IntN(65536), g.r.IntN(65536), g.r.IntN(65536)))
		}

		return networkingv1.NetworkPolicyPeer{IPBlock: b}
	case 2:
		a := g.address().Unmap()
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}}
	default:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere}
	}
}

// selector returns a selector by labels, by expressions, by both, or of everything.
func (g *generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if g.r.IntN(2) == 0 {
		s.MatchLabels = map[string]string{"app": pick(g, "web", "new", "guarded")}
	}

	for range pick(g, 0, 0, 1, 3) {
		r := metav1.LabelSelectorRequirement{Key: pick(g, "app", "l0", "kubernetes.io/metadata.name"), Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			for i := range pick(g, 1, 2, 50) {
				r.Values = append(r.Values, pick(g, "web", victim, fmt.Sprint(i)))
			}
		}

		s.MatchExpressions = append(s.MatchExpressions, r)
	}

	return s
}

// policyPorts returns no ports, ports by number and name, or many ranges.
func (g *generator) policyPorts() (out []networkingv1.NetworkPolicyPort) {
	switch g.r.IntN(3) {
	case 0:
		for range pick(g, 1, 3) {
			out = append(out, networkingv1.NetworkPolicyPort{Protocol: ptr(g, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP), Port: ptr(g, intstr.FromInt32(g.port()), intstr.FromString("http"))})
		}
	case 1:
		out = ranges(pick(g, 1, 100, 1000), int32(1+g.r.IntN(50)), pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP))
	}

	return out
}

// ranges returns n ranges of ports that do not touch.
func ranges(n int, long int32, protocol corev1.Protocol) (out []networkingv1.NetworkPolicyPort) {
	for i := range int32(n) {
		port, last := intstr.FromInt32(1+i*60), 1+i*60+long
		out = append(out, networkingv1.NetworkPolicyPort{Port: &port, EndPort: &last, Protocol: &protocol})
	}

	return out
}

// portPolicy returns a policy for all pods of the namespace, with rules of many ranges of ports.
func portPolicy(name string, rules, each int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}

	for i := range rules {
		block := &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.0.0/16", i)}
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: block}}, Ports: ranges(each, 50, corev1.ProtocolTCP)})
	}

	return p
}
