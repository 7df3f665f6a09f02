package plan

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Bounds on what one object can ask for, so that planning it costs no more than others can
// wait. What exceeds them is left out and named in an Unserved: closed, never open.
// docs/networkpolicy.md and docs/services.md list them.
const (
	maxRulePrefixes   = 4096     // of a rule's blocks, without their exceptions
	maxPolicyPrefixes = 16384    // of all rules
	maxRules          = 1024     // of a policy
	maxRulePorts      = 1024     // of a rule
	maxSelectors      = 256      // of a policy's peers
	maxSelectorTerms  = 4096     // labels, requirements and their values, of all selectors of a policy
	maxNamedPorts     = 128      // of a policy, times the selectors whose pods they are of
	maxPolicyText     = 1 << 20  // bytes of all ACLs' matches of a policy
	maxSourcePrefixes = 16384    // by which the clients outside of a Service's source ranges are told, per family
	maxServiceText    = 16 << 20 // bytes of all VIPs and backends of a Service's load balancers
)

// terms is how much there is to compare a pod with.
func terms(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := len(s.MatchLabels)
	for i := range s.MatchExpressions {
		n += 1 + len(s.MatchExpressions[i].Values)
	}
	return n
}

// subjectExceeds reports whether the policy's own selector is larger than any may be.
func subjectExceeds(p *networkingv1.NetworkPolicy) bool {
	return terms(&p.Spec.PodSelector) > maxSelectorTerms
}

// bounds is what a policy has left of its bounds, as its rules are gone through.
type bounds struct{ rules, selectors, terms, named int }

func newBounds(p *networkingv1.NetworkPolicy) bounds {
	return bounds{maxRules, maxSelectors, maxSelectorTerms - terms(&p.Spec.PodSelector), maxNamedPorts}
}

// take marks what of the rule exceeds the bounds. It returns false if the rule itself does.
func (b *bounds) take(r *rule) bool {
	if b.rules--; b.rules < 0 {
		return false
	}
	pods := 0
	for i, peer := range r.from {
		if !isPods(peer) {
			continue
		}
		n := terms(peer.NamespaceSelector) + terms(peer.PodSelector)
		if b.selectors == 0 || b.terms < n {
			r.overPeers = mark(r.overPeers, i, len(r.from))
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
			r.overPorts = mark(r.overPorts, i, len(r.ports))
			continue
		}
		b.named -= n
	}
	return true
}

func mark(over []bool, i, n int) []bool {
	if over == nil {
		over = make([]bool, n)
	}
	over[i] = true
	return over
}

// is reports whether i is marked; nothing is in nil.
func is(over []bool, i int) bool { return over != nil && over[i] }

// checkBounds adds what of the policy exceeds its bounds.
func checkBounds(p *networkingv1.NetworkPolicy, rules []rule, wrong *shortfall) {
	if subjectExceeds(p) {
		wrong.add("spec.podSelector: more than %d labels, requirements and values: the policy is for all pods of the namespace, and allows nothing", maxSelectorTerms)
		return
	}
	in, out := isolates(p)
	wanted := 0
	if in {
		wanted += len(p.Spec.Ingress)
	}
	if out {
		wanted += len(p.Spec.Egress)
	}
	if wanted > len(rules) {
		wrong.add("spec: the last %d rules: a policy has at most %d", wanted-len(rules), maxRules)
	}
	for _, r := range rules {
		if r.overPeers != nil {
			wrong.add("spec.%s[%d].%s[%d] and maybe others: the policy has at most %d selectors with %d labels, requirements and values", r.rules, r.index, r.peers, slices.Index(r.overPeers, true), maxSelectors, maxSelectorTerms)
		}
		if r.overPorts != nil {
			wrong.add("spec.%s[%d].ports[%d] and maybe others: a rule has at most %d ports, a policy %d with names, counted for each selector", r.rules, r.index, slices.Index(r.overPorts, true), maxRulePorts, maxNamedPorts)
		}
	}
}

// Size is how many bytes the rows have, as far as one object decides about them: matches,
// VIPs and backends.
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
