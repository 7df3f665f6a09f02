package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Priorities of the ACLs of policies. Both are those of ovn-kubernetes.
const (
	allowPriority = 1001 // allows traffic
	denyPriority  = 1000 // drops the rest (selectorRows)
)

// policyRows returns the ACLs that allow what the policy's rules allow: one for each family and
// protocol of a rule, and further ones for named ports. They apply to the port group of the
// policy's current pods. The ACLs that drop the rest belong to the selector (selectorRows).
//
// Malformed parts, and parts that exceed their bounds, are left out and named by the error. Such a
// peer or port allows no traffic. A policy with a malformed podSelector applies to no pod. So a
// mistake neither opens nor closes more than the rest of the policy.
func policyRows(c *Cluster, key Key) ([]Row, error) {
	p, flows, states := c.budgets.plan(c, key)
	if p == nil {
		return nil, nil
	}

	var wrong shortfall

	addExceededFlows(flows, states, &wrong)
	checkPolicy(p, &wrong)

	rules := rulesOf(p)
	addExceededLimits(p, rules, &wrong)

	// All matches are made first, so that wrong is complete if the policy applies to no pod.
	remainingPrefixes := maxPolicyPrefixes
	matches := make([]match, 0, len(rules)) // by the index in rules

	for _, r := range rules {
		matches = append(matches, r.match(&wrong, &remainingPrefixes))
	}

	u, ok := usageOf(p)
	if !ok {
		return nil, newUnserved(wrong...)
	}

	logging, err := c.aclLoggingOf(p.Namespace)
	if err != nil {
		wrong.add("%v", err)
	}

	var rows []Row

	for i, r := range rules {
		if states[r.side] != directionServed {
			continue // the groups of these rules do not exist either (usedGroup.existsWith)
		}

		acls, groups := c.ruleRows(u.subject, r, matches[i])

		for _, acl := range acls {
			acl.Label = aclLabel(p.Namespace, p.Name, r.name, strconv.Itoa(r.index))
			rows = append(rows, acl.logged(logging.Allow))
		}

		for _, g := range groups {
			rows = append(rows, g)
		}
	}

	return uniqueRows(rows), newUnserved(wrong...)
}

// The two directions of policies, as indexes of a perSide.
const (
	ingressSide = iota
	egressSide
	sides
)

// perSide has a value for each direction.
type perSide[T any] [sides]T

// direction describes one of the two directions of policies in terms of Kubernetes and of OVN. OVN
// sees them from the switch: a packet to a pod leaves the switch by the pod's port (outport).
type direction struct {
	name         string // as in policyTypes
	side         int    // ingressSide or egressSide
	rulesField   string // of a policy, for errors
	peersField   string // of a rule, for errors
	aclDirection string // ACL.direction
	aclOptions   map[string]string
	self         string // in matches: the field with the port of the policy's pod
	peer         string // in matches: "src" or "dst", the end that is the peer
}

// ingress is evaluated at the port of the receiving pod.
func ingress() direction {
	return direction{
		name:         "Ingress",
		side:         ingressSide,
		rulesField:   "ingress",
		peersField:   "from",
		aclDirection: "to-lport",
		self:         "outport",
		peer:         "src",
	}
}

// egress is evaluated after load balancing, because an egress policy is about the final destination
// of a connection. To allow a Service, a policy allows its pods.
func egress() direction {
	return direction{
		name:         "Egress",
		side:         egressSide,
		rulesField:   "egress",
		peersField:   "to",
		aclDirection: "from-lport",
		aclOptions:   map[string]string{"apply-after-lb": "true"},
		self:         "inport",
		peer:         "dst",
	}
}

// rule is one of a policy's rules, of either direction.
type rule struct {
	direction
	policy *networkingv1.NetworkPolicy
	index  int                              // in the policy's list of this direction
	peers  []networkingv1.NetworkPolicyPeer // empty: all
	ports  []networkingv1.NetworkPolicyPort // empty: all
	// Marks of the peers and ports that exceed the policy's bounds, by index; they allow no traffic.
	// Nil: all are within the bounds.
	excessPeers, excessPorts []bool
}

// isolates returns the directions in which the policy isolates pods. Without policyTypes the
// defaults are those of the API server: ingress, and egress if the policy has egress rules.
func isolates(p *networkingv1.NetworkPolicy) (in, out bool) {
	if len(p.Spec.PolicyTypes) == 0 {
		return true, len(p.Spec.Egress) > 0
	}

	return slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// rulesOf returns the rules in the directions that the policy isolates, within its bounds.
func rulesOf(p *networkingv1.NetworkPolicy) []rule {
	if podSelectorExceeds(p) {
		return nil
	}

	var out []rule

	limits := newRemainingLimits(p)
	add := func(r rule) {
		if limits.takeRule(&r) {
			out = append(out, r)
		}
	}

	isolatesIngress, isolatesEgress := isolates(p)
	if isolatesIngress {
		for i, r := range p.Spec.Ingress {
			add(rule{direction: ingress(), policy: p, index: i, peers: r.From, ports: r.Ports})
		}
	}

	if isolatesEgress {
		for i, r := range p.Spec.Egress {
			add(rule{direction: egress(), policy: p, index: i, peers: r.To, ports: r.Ports})
		}
	}

	return out
}

// ruleRows returns the rows of a rule, given its match:
//   - one ACL for each pair of a family of its peers and a protocol of its ports;
//   - for each number of its named ports, a port group of the pods that have the number, and an ACL
//     for each family of its peers. For ingress, the ACL applies to this group. For egress, its
//     peers are this group.
func (c *Cluster) ruleRows(subject selector, r rule, m match) (acls []ACL, groups []PortGroup) {
	if m.noPeer {
		return nil, nil
	}

	group := subject.group()
	addACLs := func(id, podGroup string, peers, ports []term) { // that apply to the pods of podGroup
		for _, peer := range orAll(peers) {
			for _, port := range orAll(ports) {
				if peer.text == "" && port.text == "" {
					port.text = "ip" // policies are about IP packets only
				}

				acls = append(acls, ACL{
					Group:     group,
					Rule:      strings.Join(strings.Fields(id+" "+peer.name+" "+port.name), " "),
					Direction: r.aclDirection,
					Priority:  allowPriority,
					Match:     conjunction(r.self+" == @"+podGroup, peer.text, port.text),
					Action:    "allow-related",
					Options:   r.aclOptions,
				})
			}
		}
	}

	id := strconv.Itoa(r.index)
	if !m.noPort {
		addACLs(id, group, m.peers, m.ports)
	}

	for _, named := range r.namedPorts(subject) {
		for _, number := range c.namedPortNumbers(named) {
			numberGroup := named.group(number)
			groups = append(groups, PortGroup{
				Name:        numberGroup,
				ExternalIDs: map[string]string{"pods": named.canonicalText() + " " + strconv.Itoa(number)},
			})

			podGroup := group
			if r.side == ingressSide {
				podGroup = numberGroup
			}

			port := []term{{text: fmt.Sprintf("%s.dst == %d", named.protocol, number), values: 1}}
			addACLs(id+" "+numberGroup, podGroup, r.namedPeers(m, numberGroup), port)
		}
	}

	return acls, groups
}

// namedPeers returns the peers of the ACL for one number of a named port: those of the rule for
// ingress, the group of the pods that have the number for egress.
func (r rule) namedPeers(m match, group string) []term {
	if r.side == ingressSide {
		return m.peers
	}

	return r.groupTerms(group)
}

// uniqueRows removes rows with the same ID: two ports of a rule may have the same name.
func uniqueRows(rows []Row) []Row {
	seen := map[string]bool{}

	return slices.DeleteFunc(rows, func(r Row) bool {
		id := r.Table() + " " + r.ID()
		again := seen[id]
		seen[id] = true

		return again
	})
}

// checkPolicy adds to wrong the errors of a policy that are not those of a rule.
func checkPolicy(p *networkingv1.NetworkPolicy, wrong *shortfall) {
	if err := checkLabels(&p.Spec.PodSelector); err != nil {
		wrong.add("spec.podSelector.%v", err)
	}

	for i, t := range p.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			wrong.add("spec.policyTypes[%d]: unknown type %q", i, t)
		}
	}
}
