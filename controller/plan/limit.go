package plan

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Bounds on what one object, or the policies of a namespace, can request, so that planning it does
// not delay other objects for long. The part that exceeds a bound is left out and named in an
// Unserved: it fails closed. docs/networkpolicy.md and docs/services.md list the bounds. Bounds on
// memberships in port groups are in policyscope.go, shares of all namespaces in policyshare.go, and
// the bounds of package service in its bound.go.
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

// selectorTerms returns the number of terms that labels are compared with.
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

// remainingLimits holds what remains of a policy's bounds while rulesOf counts its rules.
type remainingLimits struct {
	rules      int // of maxRules
	selectors  int // of maxSelectors
	terms      int // of maxSelectorTerms
	namedPorts int // of maxNamedPorts
}

// newRemainingLimits returns the limits for the rules. The policy's own selector is subtracted.
func newRemainingLimits(p *networkingv1.NetworkPolicy) remainingLimits {
	return remainingLimits{
		rules:      maxRules,
		selectors:  maxSelectors,
		terms:      maxSelectorTerms - selectorTerms(&p.Spec.PodSelector),
		namedPorts: maxNamedPorts,
	}
}

// takeRule subtracts the rule from the limits, and marks its peers and ports that exceed them. It
// returns false if the rule itself exceeds them.
func (l *remainingLimits) takeRule(r *rule) bool {
	if l.rules--; l.rules < 0 {
		return false
	}

	selectors := l.takePeers(r)

	// A named port counts once for each selector of the pods that have it. For ingress, that is the
	// policy's own selector. For egress, it is each peer, or the selector of all pods.
	if r.side == ingressSide || len(r.peers) == 0 {
		selectors = 1
	}

	for i, port := range r.ports {
		cost := 0
		if port.Port != nil && port.Port.Type == intstr.String {
			cost = selectors
		}

		if i >= maxRulePorts || l.namedPorts < cost {
			r.excessPorts = markIndex(r.excessPorts, i, len(r.ports))
			continue
		}

		l.namedPorts -= cost
	}

	return true
}

// takePeers subtracts the selectors of the rule's peers. It returns the number of those that do not
// exceed the limits.
func (l *remainingLimits) takePeers(r *rule) (selectors int) {
	for i, peer := range r.peers {
		if !selectsPods(peer) {
			continue
		}

		terms := selectorTerms(peer.NamespaceSelector) + selectorTerms(peer.PodSelector)
		if l.selectors == 0 || l.terms < terms {
			r.excessPeers = markIndex(r.excessPeers, i, len(r.peers))
			continue
		}

		l.selectors--
		l.terms -= terms
		selectors++
	}

	return selectors
}

// markIndex marks index i of n. A nil slice marks no index, so rules within the limits need none.
func markIndex(marks []bool, i, n int) []bool {
	if marks == nil {
		marks = make([]bool, n)
	}

	marks[i] = true

	return marks
}

// isMarked reports whether index i is marked.
func isMarked(marks []bool, i int) bool { return marks != nil && marks[i] }

// addExceededFlows adds to wrong the directions that are closed because of their flows.
func addExceededFlows(flows perSide[int], states perSide[directionState], wrong *shortfall) {
	for _, d := range []direction{ingress(), egress()} {
		switch n := flows[d.side]; states[d.side] {
		case directionIdle, directionServed:
		case exceedsDirectionLimit:
			wrong.add("spec.%s: its rules cost %d flows of each node, at most %d are served: the policy allows nothing in this direction",
				d.rulesField, n, maxDirectionFlows)
		case exceedsNamespaceLimit:
			// The text has no sum of the namespace: a change of one policy would change the Events
			// of all younger ones that are closed.
			wrong.add("spec.%s: with the %d flows of its rules the policies of the namespace, oldest first, would cost more than %d flows of each node: the policy allows nothing in this direction",
				d.rulesField, n, maxNamespaceFlows)
		case exceedsMembershipLimits:
			wrong.add("spec.%s: with the selectors of its rules the policies of the namespace, oldest first, would have more than %d selectors for pods of another namespace, %d for its own, or %d memberships of pods: the policy allows nothing in this direction",
				d.rulesField, maxForeignGroups, maxOwnGroups, maxMemberships)
		case exceedsShare:
			wrong.add("spec.%s: with its rules the policies of the namespace, oldest first, would have more selectors or flows than its share: many namespaces need more than %d selectors or %d flows: the policy allows nothing in this direction",
				d.rulesField, basicGroups, basicFlows)
		}
	}
}

// addExceededLimits adds to wrong the parts of the policy that exceed its bounds. rules are the
// rules within the bounds.
func addExceededLimits(p *networkingv1.NetworkPolicy, rules []rule, wrong *shortfall) {
	if podSelectorExceeds(p) {
		wrong.add("spec.podSelector: more than %d labels, requirements and values: the policy is for all pods of the namespace, and allows nothing",
			maxSelectorTerms)

		return
	}

	isolatesIngress, isolatesEgress := isolates(p)

	all := 0
	if isolatesIngress {
		all = len(p.Spec.Ingress)
	}

	if isolatesEgress {
		all += len(p.Spec.Egress)
	}

	if all > len(rules) {
		wrong.add("spec: the last %d rules: a policy has at most %d", all-len(rules), maxRules)
	}

	for _, r := range rules {
		if r.excessPeers != nil {
			wrong.add("spec.%s[%d].%s[%d] and maybe others: the policy has at most %d selectors with %d labels, requirements and values",
				r.rulesField, r.index, r.peersField, slices.Index(r.excessPeers, true), maxSelectors, maxSelectorTerms)
		}

		if r.excessPorts != nil {
			wrong.add("spec.%s[%d].ports[%d] and maybe others: a rule has at most %d ports, a policy %d with names, counted for each selector",
				r.rulesField, r.index, slices.Index(r.excessPorts, true), maxRulePorts, maxNamedPorts)
		}
	}
}
