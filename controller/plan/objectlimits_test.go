package plan_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestPolicySizeLimits checks a policy that exceeds a bound: the excess allows nothing, the rest
// still applies, the pods of the policy are isolated, and an Event names the bound.
func TestPolicySizeLimits(t *testing.T) {
	small := block("192.0.2.0/24", nil)
	ports := func(n int, named bool) []networkingv1.NetworkPolicyPort {
		var out []networkingv1.NetworkPolicyPort

		for i := range n {
			port := intstr.FromInt32(int32(2 * (i + 1)))
			if named {
				port = intstr.FromString(paddedValue(i))
			}

			out = append(out, networkingv1.NetworkPolicyPort{Port: &port})
		}

		return out
	}
	rule := func(ports []networkingv1.NetworkPolicyPort, to ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: to, Ports: ports}
	}
	many := func(n int) (out []networkingv1.NetworkPolicyPeer) {
		for i := range n {
			out = append(out, block(scattered6(i), nil))
		}

		return out
	}

	huge := block("::/0", each(4000, scattered6))
	for _, tc := range []struct {
		name  string
		rules []networkingv1.NetworkPolicyEgressRule
		acls  int    // number of ACLs that allow
		with  string // text in one of them
		event string
	}{
		{"within", []networkingv1.NetworkPolicyEgressRule{rule(nil, block("::/0", each(15, scattered6)))}, 1, "ip6.dst == {", ""},
		{"exceptions", []networkingv1.NetworkPolicyEgressRule{rule(nil, huge)}, 0, "", "spec.egress[0].to[0].ipBlock.cidr: the blocks without their exceptions are more than 4096 prefixes"},
		{"exceptions beside another peer", []networkingv1.NetworkPolicyEgressRule{rule(nil, huge, small)}, 1, "ip4.dst == 192.0.2.0/24", "4096 prefixes"},
		{"blocks of a rule", []networkingv1.NetworkPolicyEgressRule{rule(nil, many(4097)...)}, 0, "", "spec.egress[0].to[4096].ipBlock"},
		{"blocks of a policy", []networkingv1.NetworkPolicyEgressRule{rule(nil, many(4096)...), rule(nil, many(4096)...), rule(nil, many(4096)...), rule(nil, many(4096)...), rule(nil, small)}, 0, "", "spec.egress[4].to[0].ipBlock"},
		{"rules", make([]networkingv1.NetworkPolicyEgressRule, 1025), 1024, "", "the last 1 rules: a policy has at most 1024"},
		{"only selectors beyond", []networkingv1.NetworkPolicyEgressRule{rule(nil, selectors(256, 1)...), rule(nil, selectors(300, 1)[299])}, 2, "", "spec.egress[1].to[0] and maybe others: the policy has at most 256 selectors"},
		{"only a selector that is too large", []networkingv1.NetworkPolicyEgressRule{rule(nil, selectors(1, 4097)...)}, 0, "", "4096 labels, requirements and values"},
		{"ports", []networkingv1.NetworkPolicyEgressRule{rule(ports(1025, false), small)}, 1, "2048}", "spec.egress[0].ports[1024] and maybe others: a rule has at most 1024 ports"},
		{"only ports beyond", []networkingv1.NetworkPolicyEgressRule{rule(ports(128, true), selectors(1, 1)...), rule(ports(1, true), selectors(1, 1)...)}, 0, "", "spec.egress[1].ports[0] and maybe others"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policyWith()[0].(*networkingv1.NetworkPolicy)
			p.Spec.Egress = tc.rules

			acls, drops, event := planPolicy(t, p)
			if len(acls) != tc.acls || !strings.Contains(strings.Join(acls, "\n"), tc.with) {
				t.Errorf("%d ACLs allow, want %d with %q: %.300v", len(acls), tc.acls, tc.with, acls)
			}

			if drops == 0 {
				t.Error("no ACL drops packets: the policy isolates no pod")
			}

			if (event == "") != (tc.event == "") || !strings.Contains(event, tc.event) {
				t.Errorf("Event %q, want %q", event, tc.event)
			}
		})
	}

	t.Run("subject", func(t *testing.T) {
		p := policyWith(small)[0].(*networkingv1.NetworkPolicy)
		p.Spec.PodSelector = *selectors(1, 4097)[0].PodSelector

		acls, drops, event := planPolicy(t, p)
		if len(acls) > 0 || drops != 1 || !strings.Contains(event, "the policy is for all pods of the namespace, and allows nothing") {
			t.Errorf("allowing ACLs %v, %d dropping ACLs, Event %q", acls, drops, event)
		}
	})
}

// planPolicy returns the matches of the allowing ACLs, the number of dropping ACLs, and the text of
// the Event.
func planPolicy(t *testing.T, p *networkingv1.NetworkPolicy) (allow []string, drop int, event string) {
	t.Helper()

	pod := hostilePod(1)

	c := simCluster(t, p, pod)
	for _, k := range c.Keys() {
		rows, err := plan.Rows(c, k)
		if err != nil && k.Kind == plan.KindPolicy {
			event = err.Error()
		}

		for _, r := range rows {
			switch acl, _ := r.(plan.ACL); {
			case acl.Action == "drop":
				drop++
			case acl.Action == "allow-related" && k.Kind == plan.KindPolicy:
				allow = append(allow, acl.Match)
			}
		}
	}

	return allow, drop, event
}

// TestSourceRangeLimits checks that too many source ranges admit no client.
func TestSourceRangeLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ranges []string
		match  string
		event  string
	}{
		{"within", each(100, scattered6), "ip6.src == {", ""},
		{"prefixes", each(1000, scattered6), "&& ip6", "what is outside of those of IPv6 is more than 16384 prefixes: no client may come"},
		{"ranges", each(services.MaxSourceRanges+1, scattered6), "ip6.src == {", "loadBalancerSourceRanges: more than 4096: no client may come"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := serviceWith(3, 0, 2, 1)
			objects[0].(*corev1.Service).Spec.LoadBalancerSourceRanges = tc.ranges

			acls, _, event := planService(t, objects)
			if len(acls) == 0 || (event == "") != (tc.event == "") || !strings.Contains(event, tc.event) {
				t.Fatalf("%d ACLs, Event %q, want %q", len(acls), event, tc.event)
			}

			for _, acl := range acls {
				if strings.Contains(acl.Match, "ip6.dst") && !strings.Contains(acl.Match, tc.match) {
					t.Errorf("match %.200s, want %q", acl.Match, tc.match)
				}

				if tc.name == "ranges" && strings.Count(acl.Match, "/") > 2*128 {
					t.Errorf("match %.200s: admits a client", acl.Match)
				}
			}
		})
	}

	objects := serviceWith(3, 0, 0, 1)

	objects[0].(*corev1.Service).Spec.LoadBalancerSourceRanges = each(1000, scattered6)
	if acls, _, event := planService(t, objects); len(acls) > 0 || event != "" {
		t.Errorf("no announced address: ACLs %v, Event %q", acls, event)
	}
}

// TestServiceSizeLimits checks that the part of a Service within a bound is served and the excess
// is not.
func TestServiceSizeLimits(t *testing.T) {
	for _, tc := range []struct {
		ports, external, ingress, endpoints int
		served                              int
		event                               string
	}{
		{1024, 0, 0, 10, 2048, ""},
		{1025, 0, 0, 10, 2048, "the last 1 ports: a service has at most 1024"},
		{1, 65, 0, 10, 2 + 64, "the last 1 external IPs: a service has at most 64"},
		{1, 0, 65, 10, 2 + 64, "the last 1 load balancer addresses: a service has at most 64"},
		{200, 64, 0, 10, 124 * 66, "the last 76 ports"},
		{200, 0, 0, 10000, 2 * 13, "the last 187 ports"},
	} {
		t.Run(fmt.Sprint(tc.ports, tc.external, tc.ingress, tc.endpoints), func(t *testing.T) {
			_, vips, event := planService(t, serviceWith(tc.ports, tc.external, tc.ingress, tc.endpoints))
			if vips != tc.served || (event == "") != (tc.event == "") || !strings.Contains(event, tc.event) {
				t.Errorf("%d VIPs, want %d; Event %q, want %q", vips, tc.served, event, tc.event)
			}
		})
	}
}

func planService(t *testing.T, objects []k8sruntime.Object) (acls []plan.ACL, vips int, event string) {
	t.Helper()
	c := simCluster(t, objects...)
	c.Config.Shares = services.Shares{Namespace: 100_000, FlowsPerNode: 100_000} // the bounds are those of one Service

	rows, err := plan.Rows(c, plan.ServiceKey("ns", "s"))
	if err != nil {
		event = err.Error()
	}

	for _, r := range rows {
		switch r := r.(type) {
		case plan.ACL:
			acls = append(acls, r)
		case plan.LoadBalancer:
			vips += len(r.VIPs)
		}
	}

	return acls, vips, event
}

// TestPolicyMatchesOfOneField checks that each term of a match is about one field. OVN makes
// conjunctive flows, whose number is a sum, only of such matches. For others the number is the
// product.
func TestPolicyMatchesOfOneField(t *testing.T) {
	var ports []networkingv1.NetworkPolicyPort

	first, last, name := intstr.FromInt32(8000), int32(9000), intstr.FromString("named")
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &first},
			networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &first, EndPort: &last}, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &name})
	}

	p := policyWith()[0].(*networkingv1.NetworkPolicy)
	peers := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}}, {IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}, {IPBlock: &networkingv1.IPBlock{CIDR: "2001:db8::/64"}},
	}
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}, {To: peers}, {Ports: ports}}

	acls, _, _ := planPolicy(t, p)
	if want := 2*3 + 2 + 3; len(acls) != want {
		t.Errorf("%d ACLs, want %d: one for each family and protocol", len(acls), want)
	}

	field := regexp.MustCompile(`\b(inport|ip4|ip6|tcp|udp|sctp)\b`)

	for _, match := range acls {
		for _, term := range strings.Split(match, " && ") {
			if fields := slices.Compact(slices.Sorted(slices.Values(field.FindAllString(term, -1)))); len(fields) != 1 {
				t.Errorf("term %q of %q has the fields %q", term, match, fields)
			}
		}
	}
}
