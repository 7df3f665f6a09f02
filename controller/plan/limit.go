package plan

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Bounds on what one object can request, so that planning it does not delay other objects for long.
// The part that exceeds a bound is left out and named in an Unserved: it fails closed.
// docs/networkpolicy.md and docs/services.md list the bounds.
const (
	maxRulePrefixes   = 4096     // of a rule's blocks after removing their exceptions
	maxPolicyPrefixes = 16384    // of all rules
	maxRules          = 1024     // of a policy
	maxRulePorts      = 1024     // of a rule
	maxSelectors      = 256      // of a policy's peers
	maxSelectorTerms  = 4096     // labels, requirements and their values, of all selectors of a policy
	maxNamedPorts     = 128      // of a policy, counted once per selector
	maxDirectionFlows = 4096     // of a policy's ACLs of one direction, on each node (policycost.go)
	maxNamespaceFlows = 16384    // of all policies of a namespace
	maxServiceBytes   = 16 << 20 // bytes of all VIPs and backends of a Service's load balancers
)

// selectorTerms returns the number of terms that a pod is compared with.
func selectorTerms(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}

	n := len(s.MatchLabels)
	for i := range s.MatchExpressions {
		n += 1 + len(s.MatchExpressions[i].Values)
	}

	return n
}

// podSelectorExceeds reports whether the policy's own selector exceeds the bound.
func podSelectorExceeds(p *networkingv1.NetworkPolicy) bool {
	return selectorTerms(&p.Spec.PodSelector) > maxSelectorTerms
}

// remainingLimits holds what remains of a policy's bounds while its rules are counted.
type remainingLimits struct{ rules, selectors, terms, named int }

func newRemainingLimits(p *networkingv1.NetworkPolicy) remainingLimits {
	terms := maxSelectorTerms - selectorTerms(&p.Spec.PodSelector)

	return remainingLimits{maxRules, maxSelectors, terms, maxNamedPorts}
}

// takeRule marks the peers and ports of the rule that exceed the bounds. It returns false if the
// rule itself does.
func (b *remainingLimits) takeRule(r *rule) bool {
	if b.rules--; b.rules < 0 {
		return false
	}

	pods := 0

	for i, peer := range r.from {
		if !isPods(peer) {
			continue
		}

		n := selectorTerms(peer.NamespaceSelector) + selectorTerms(peer.PodSelector)
		if b.selectors == 0 || b.terms < n {
			r.overPeers = markIndex(r.overPeers, i, len(r.from))
			continue
		}

		b.selectors, b.terms, pods = b.selectors-1, b.terms-n, pods+1
	}

	if r.lport == ingress().lport || len(r.from) == 0 {
		pods = 1
	}

	for i, port := range r.ports {
		n := 0
		if port.Port != nil && port.Port.Type == intstr.String {
			n = pods
		}

		if i >= maxRulePorts || b.named < n {
			r.overPorts = markIndex(r.overPorts, i, len(r.ports))
			continue
		}

		b.named -= n
	}

	return true
}

// addExceededFlows adds the directions that are closed because of their flows.
func addExceededFlows(flows perSide[int], closed perSide[closure], wrong *shortfall) {
	for _, d := range []direction{ingress(), egress()} {
		switch n := flows[d.side]; closed[d.side] {
		case directionServed:
		case exceedsDirectionLimit:
			wrong.add("spec.%s: its rules cost %d flows of each node, at most %d are served: the policy allows nothing in this direction",
				d.rules, n, maxDirectionFlows)
		case exceedsNamespaceLimit:
			// The text has no sum of the namespace: a change of one policy would change the Events of all
			// younger ones that are closed.
			wrong.add("spec.%s: with the %d flows of its rules the policies of the namespace, oldest first, would cost more than %d flows of each node: the policy allows nothing in this direction",
				d.rules, n, maxNamespaceFlows)
		}
	}
}

func markIndex(over []bool, i, n int) []bool {
	if over == nil {
		over = make([]bool, n)
	}

	over[i] = true

	return over
}

// isMarked reports whether i is marked. A nil slice marks no index.
func isMarked(over []bool, i int) bool { return over != nil && over[i] }

// addExceededLimits adds the parts of the policy that exceed its bounds.
func addExceededLimits(p *networkingv1.NetworkPolicy, rules []rule, wrong *shortfall) {
	if podSelectorExceeds(p) {
		wrong.add("spec.podSelector: more than %d labels, requirements and values: the policy is for all pods of the namespace, and allows nothing",
			maxSelectorTerms)

		return
	}

	in, out := isolates(p)

	wanted := 0
	if in {
		wanted = len(p.Spec.Ingress)
	}

	if out {
		wanted += len(p.Spec.Egress)
	}

	if wanted > len(rules) {
		wrong.add("spec: the last %d rules: a policy has at most %d", wanted-len(rules), maxRules)
	}

	for _, r := range rules {
		if r.overPeers != nil {
			wrong.add("spec.%s[%d].%s[%d] and maybe others: the policy has at most %d selectors with %d labels, requirements and values",
				r.rules, r.index, r.peers, slices.Index(r.overPeers, true), maxSelectors, maxSelectorTerms)
		}

		if r.overPorts != nil {
			wrong.add("spec.%s[%d].ports[%d] and maybe others: a rule has at most %d ports, a policy %d with names, counted for each selector",
				r.rules, r.index, slices.Index(r.overPorts, true), maxRulePorts, maxNamedPorts)
		}
	}
}

// Size returns how many bytes of the rows one object controls: matches, VIPs and backends.
func Size(rows []Row) int {
	n := 0

	for _, r := range rows {
		switch r := r.(type) {
		case ACL:
			n += len(r.Match)
		case LoadBalancer:
			for v, b := range r.VIPs {
				n += len(v) + len(b)
			}
		}
	}

	return n
}
