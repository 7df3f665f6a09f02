package plan_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestPolicyLimits checks each bound of a policy at its limit, which is served whole, and one
// above, with the message that names the bound. The blocks of a rule exceed the bound of flows
// before.
func TestPolicyLimits(t *testing.T) {
	const (
		selectorsMessage = "spec.egress[0].to[%d] and maybe others: the policy has at most 256 selectors with 4096 labels, requirements and values"
		portsMessage     = "spec.%s[0].ports[%d] and maybe others: a rule has at most 1024 ports, a policy 128 with names, counted for each selector"
		blocksMessage    = "spec.egress[%d].to[%d].ipBlock.cidr: the blocks without their exceptions are more than 4096 prefixes of a rule or 16384 of a policy"
		rulesMessage     = "spec: the last 1 rules: a policy has at most 1024"
		flowsMessage     = "spec.%s: its rules cost %d flows of each node, at most 4096 are served: the policy allows nothing in this direction"
	)

	small := block("192.0.2.0/24", nil)

	for _, tc := range []struct {
		name    string
		limit   int
		message string // one above the limit
		policy  func(n int) networkingv1.NetworkPolicySpec
	}{
		{"rules of egress", 1024, rulesMessage, func(n int) networkingv1.NetworkPolicySpec { return rulesOf(0, n) }},
		{"rules of ingress", 1024, rulesMessage, func(n int) networkingv1.NetworkPolicySpec { return rulesOf(n, 0) }},
		{"rules of both", 1024, rulesMessage, func(n int) networkingv1.NetworkPolicySpec { return rulesOf(n-400, 400) }},
		{"ports of a rule", 1024, fmt.Sprintf(portsMessage, "egress", 1024), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(numbered(n), small)
		}},
		{"named ports of a selector", 128, fmt.Sprintf(portsMessage, "egress", 128), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(named(n), selectors(1, 1)...)
		}},
		{"named ports of three selectors", 42, fmt.Sprintf(portsMessage, "egress", 42), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(named(n), append(selectors(3, 1), small)...)
		}},
		{"named ports of all pods", 128, fmt.Sprintf(portsMessage, "egress", 128), func(n int) networkingv1.NetworkPolicySpec { return egressTo(named(n)) }},
		{"named ports of blocks", 1024, fmt.Sprintf(portsMessage, "egress", 1024), func(n int) networkingv1.NetworkPolicySpec { return egressTo(named(n), small) }},
		{"named ports of ingress", 128, fmt.Sprintf(portsMessage, "ingress", 128), func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: named(n), From: selectors(3, 1)}}}
		}},
		{"selectors", 256, fmt.Sprintf(selectorsMessage, 256), func(n int) networkingv1.NetworkPolicySpec { return egressTo(nil, selectors(n, 1)...) }},
		{"selectors after a block", 256, fmt.Sprintf(selectorsMessage, 257), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(nil, append([]networkingv1.NetworkPolicyPeer{small}, selectors(n, 1)...)...)
		}},
		{"labels", 4096, fmt.Sprintf(selectorsMessage, 0), func(n int) networkingv1.NetworkPolicySpec { return egressTo(nil, selectors(1, n)...) }},
		{"labels of two selectors", 96, fmt.Sprintf(selectorsMessage, 1), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(nil, selectors(1, 4000)[0], selectors(1, n)[0])
		}},
		{"labels of pods and namespaces", 96, fmt.Sprintf(selectorsMessage, 0), func(n int) networkingv1.NetworkPolicySpec {
			peer := selectors(1, 4000)[0]
			peer.NamespaceSelector = selectors(1, n)[0].PodSelector

			return egressTo(nil, peer)
		}},
		{"values", 4093, fmt.Sprintf(selectorsMessage, 0), func(n int) networkingv1.NetworkPolicySpec {
			return egressTo(nil, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"a": "x"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "b", Operator: metav1.LabelSelectorOpExists}, {Key: "c", Operator: metav1.LabelSelectorOpIn, Values: each(n, paddedValue)},
				},
			}})
		}},
		{"labels beside the subject's", 96, fmt.Sprintf(selectorsMessage, 0), func(n int) networkingv1.NetworkPolicySpec {
			spec := egressTo(nil, selectors(1, n)...)
			spec.PodSelector = *selectors(1, 4000)[0].PodSelector

			return spec
		}},
		{"labels of the subject", 4096, "spec.podSelector: more than 4096 labels, requirements and values: the policy is for all pods of the namespace, and allows nothing", func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{PodSelector: *selectors(1, n)[0].PodSelector}
		}},
		{"prefixes of a rule", 4096, fmt.Sprintf(flowsMessage, "egress", 8192) + "; " + fmt.Sprintf(blocksMessage, 0, 4096), func(n int) networkingv1.NetworkPolicySpec { return egressTo(nil, blocks(n)...) }},
		{"prefixes of a policy", 16384, fmt.Sprintf(flowsMessage, "egress", 32768) + "; " + fmt.Sprintf(blocksMessage, 4, 384), func(n int) networkingv1.NetworkPolicySpec {
			spec := egressTo(nil, blocks(4000)...)
			for range 3 {
				spec.Egress = append(spec.Egress, spec.Egress[0])
			}

			spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: blocks(n - 16000)})

			return spec
		}},
		{"flows of egress", 2048, fmt.Sprintf(flowsMessage, "egress", 4098), func(n int) networkingv1.NetworkPolicySpec { return egressTo(nil, blocks(n)...) }},
		{"flows of ingress", 2047, fmt.Sprintf(flowsMessage, "ingress", 4098), func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: blocks(n)}, {From: []networkingv1.NetworkPolicyPeer{small}}}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const prefix = "plan policy/ns/p: not served: "

			within := ""
			if flows, _, ok := strings.Cut(tc.message, "; "); ok {
				within = prefix + flows
			}

			for n, want := range map[int]string{tc.limit: within, tc.limit + 1: prefix + tc.message} {
				p := policyWith()[0].(*networkingv1.NetworkPolicy)

				p.Spec = tc.policy(n)
				if _, _, event := planPolicy(t, p); event != want {
					t.Errorf("%d: error %q, want %q", n, event, want)
				}
			}
		})
	}
}

// TestPartsBeyondLimitsCount checks that the bounds still hold after the first peer or port beyond
// them.
func TestPartsBeyondLimitsCount(t *testing.T) {
	p := policyWith()[0].(*networkingv1.NetworkPolicy)

	p.Spec = egressTo(nil, append(selectors(1, 4097), selectors(300, 1)...)...)
	if groups, _ := plan.SelectorsOf(p); len(groups) != 1+256 {
		t.Errorf("%d groups, want those of the subject and of 256 selectors", len(groups))
	}

	p.Spec = egressTo(named(200), selectors(1, 1)...)
	pod := hostilePod(1)

	pod.Labels = map[string]string{paddedValue(0): "x"}
	for i, name := range []string{paddedValue(127), paddedValue(128), paddedValue(150)} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: name, ContainerPort: int32(1 + i)}}})
	}

	rows, _ := plan.Rows(simCluster(t, p, pod), plan.PolicyKey("ns", "p"))
	for _, r := range rows {
		if acl, ok := r.(plan.ACL); ok && !strings.HasSuffix(acl.Match, "tcp.dst == 1") {
			t.Errorf("a name beyond the bound has %q", acl.Match)
		}
	}

	if plan.Size(rows) == 0 {
		t.Error("the last name within the bound has no ACL")
	}
}

func rulesOf(in, out int) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		Ingress: make([]networkingv1.NetworkPolicyIngressRule, in), Egress: make([]networkingv1.NetworkPolicyEgressRule, out),
	}
}

func egressTo(ports []networkingv1.NetworkPolicyPort, to ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: to, Ports: ports}},
	}
}

func numbered(n int) []networkingv1.NetworkPolicyPort { return portsFrom(10000, n) }

func portsFrom(first, n int) []networkingv1.NetworkPolicyPort {
	out := make([]networkingv1.NetworkPolicyPort, n)
	for i := range out {
		port := intstr.FromInt32(int32(first + i))
		out[i].Port = &port
	}

	return out
}

func named(n int) []networkingv1.NetworkPolicyPort {
	out := make([]networkingv1.NetworkPolicyPort, n)
	for i := range out {
		port := intstr.FromString(paddedValue(i))
		out[i].Port = &port
	}

	return out
}

func blocks(n int) []networkingv1.NetworkPolicyPeer {
	out := make([]networkingv1.NetworkPolicyPeer, n)
	for i := range out {
		out[i] = block(scattered6(i), nil)
	}

	return out
}

// TestSize checks that the size of rows is that of matches, VIPs and backends.
func TestSize(t *testing.T) {
	rows := []plan.Row{
		plan.ACL{Match: "12345"},
		plan.ACL{Match: "123"},
		plan.LogicalSwitch{Name: "x"},
		plan.LoadBalancer{VIPs: map[string]string{"123": "12", "1": ""}},
		plan.LoadBalancer{VIPs: map[string]string{"": "1234567"}},
	}
	if got := plan.Size(rows); got != 5+3+3+2+1+7 {
		t.Errorf("Size = %d", got)
	}
}

// TestPolicyPortLimits checks which ports of a policy are valid.
func TestPolicyPortLimits(t *testing.T) {
	end := func(n int32) *int32 { return &n }

	number := func(n int32) *intstr.IntOrString { p := intstr.FromInt32(n); return &p }
	for _, tc := range []struct {
		port  networkingv1.NetworkPolicyPort
		match string // "" if it is malformed
		event string
	}{
		{networkingv1.NetworkPolicyPort{Port: number(1)}, "tcp.dst == 1", ""},
		{networkingv1.NetworkPolicyPort{Port: number(65535)}, "tcp.dst == 65535", ""},
		{networkingv1.NetworkPolicyPort{Port: number(0)}, "", "port: 0 is not 1 to 65535"},
		{networkingv1.NetworkPolicyPort{Port: number(65536)}, "", "port: 65536 is not 1 to 65535"},
		{networkingv1.NetworkPolicyPort{Port: number(80), EndPort: end(80)}, "80 <= tcp.dst <= 80", ""},
		{networkingv1.NetworkPolicyPort{Port: number(80), EndPort: end(65535)}, "80 <= tcp.dst <= 65535", ""},
		{networkingv1.NetworkPolicyPort{Port: number(80), EndPort: end(79)}, "", "endPort: 79 is not 80 to 65535"},
		{networkingv1.NetworkPolicyPort{Port: number(80), EndPort: end(65536)}, "", "endPort: 65536 is not 80 to 65535"},
	} {
		p := policyWith()[0].(*networkingv1.NetworkPolicy)
		p.Spec = egressTo([]networkingv1.NetworkPolicyPort{tc.port})

		acls, _, event := planPolicy(t, p)
		if (tc.match == "") != (len(acls) == 0) || !strings.Contains(strings.Join(acls, ""), tc.match) || !strings.HasSuffix(event, tc.event) || (event == "") != (tc.event == "") {
			t.Errorf("%+v: ACLs %q, error %q, want %q, %q", tc.port, acls, event, tc.match, tc.event)
		}
	}
}

// TestMalformedPartsAreLeftOut checks that a peer, a port and a selector count although the one
// before them is malformed, is beyond a bound, or is of another kind.
func TestMalformedPartsAreLeftOut(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}
	zero, web, udp := intstr.FromInt32(0), intstr.FromString("web"), corev1.ProtocolUDP
	pod := hostilePod(1)
	pod.Labels = map[string]string{paddedValue(0): "x"}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}

	valid, large := selectors(1, 1)[0], selectors(1, 4097)[0]
	for _, tc := range []struct {
		name string
		spec networkingv1.NetworkPolicySpec
		acls []string // parts of the matches, without what is hashed
	}{
		{"peer after a malformed one", egressTo(nil, networkingv1.NetworkPolicyPeer{PodSelector: bad}, block("192.0.2.0/24", nil)), []string{"ip4.dst == 192.0.2.0/24"}},
		{"peer after one beyond a bound", egressTo(nil, large, block("192.0.2.0/24", nil)), []string{"ip4.dst == 192.0.2.0/24"}},
		{"selector after a malformed one", egressTo(nil, networkingv1.NetworkPolicyPeer{PodSelector: bad}, valid), []string{"ip4.dst == $", "ip6.dst == $"}},
		{"selector after a block", egressTo([]networkingv1.NetworkPolicyPort{{Port: &web}}, block("192.0.2.0/24", nil), valid), []string{"ip4.dst == $", "ip6.dst == $"}},
		{"port after a malformed one", egressTo([]networkingv1.NetworkPolicyPort{{Port: &zero}, {Protocol: &udp}}), []string{"udp"}},
		{"port after a name", egressTo([]networkingv1.NetworkPolicyPort{{Port: &web}, {Protocol: &udp}}, valid), []string{"ip4.dst == $", "ip4.dst == $", "ip6.dst == $", "ip6.dst == $"}},
		{"port of another protocol after all of one", egressTo([]networkingv1.NetworkPolicyPort{{}, {Protocol: &udp}}), []string{"tcp", "udp"}},
		{"name after a number", egressTo([]networkingv1.NetworkPolicyPort{{Port: &zero}, {Port: &web}}, valid), []string{"ip4.dst == $", "ip6.dst == $"}},
		{"number after a name beyond a bound", egressTo(append(named(129), numbered(1)...)), []string{"tcp.dst == 10000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policyWith()[0].(*networkingv1.NetworkPolicy)
			p.Spec = tc.spec
			rows, _ := plan.Rows(simCluster(t, p, pod), plan.PolicyKey("ns", "p"))

			var got []string

			for _, r := range rows {
				if acl, ok := r.(plan.ACL); ok {
					got = append(got, acl.Match)
				}
			}

			if len(got) != len(tc.acls) {
				t.Fatalf("matches %q, want %d: %q", got, len(tc.acls), tc.acls)
			}

			for i, part := range tc.acls {
				if !strings.Contains(strings.Join(got, "\n"), part) {
					t.Errorf("matches %q, want one with %q", got, tc.acls[i])
				}
			}
		})
	}
}
