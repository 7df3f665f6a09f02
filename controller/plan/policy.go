package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// allowPriority is the priority of ACLs that allow traffic. denyPriority is that of ACLs that drop
// the rest. Both values are those of ovn-kubernetes.
const (
	allowPriority = 1001
	denyPriority  = 1000
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
	matches := make([]match, 0, len(rules))

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
			continue // portGroups leaves out the groups, too
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

// direction describes one of the two directions of policies in OVN's terms. They are seen from the
// switch: a packet to a pod leaves the switch by the pod's port.
type direction struct {
	name    string            // as in policyTypes
	side    int               // of a perSide
	rules   string            // the policy's field with the rules, for errors
	peers   string            // a rule's field with the peers, for errors
	lport   string            // ACLs: the direction
	options map[string]string // ACLs
	self    string            // matches: the field with the pod's port
	peer    string            // matches: whether the peer is the source or the destination
}

func ingress() direction {
	return direction{
		name:  "Ingress",
		side:  ingressSide,
		rules: "ingress",
		peers: "from",
		lport: "to-lport",
		self:  "outport",
		peer:  "src",
	}
}

// egress is evaluated after load balancing, because an egress policy is about the final destination
// of a connection. To allow a Service, a policy allows its pods.
func egress() direction {
	return direction{
		name:    "Egress",
		side:    egressSide,
		rules:   "egress",
		peers:   "to",
		lport:   "from-lport",
		self:    "inport",
		peer:    "dst",
		options: map[string]string{"apply-after-lb": "true"},
	}
}

// rule is one of a policy's rules, of either direction.
type rule struct {
	direction
	policy *networkingv1.NetworkPolicy
	index  int
	from   []networkingv1.NetworkPolicyPeer // "to", for egress
	ports  []networkingv1.NetworkPolicyPort
	// Peers and ports that exceed the policy's bounds; they allow no traffic. Nil: there are none.
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
			add(rule{direction: ingress(), policy: p, index: i, from: r.From, ports: r.Ports})
		}
	}

	if isolatesEgress {
		for i, r := range p.Spec.Egress {
			add(rule{direction: egress(), policy: p, index: i, from: r.To, ports: r.Ports})
		}
	}

	return out
}

// ruleRows returns the ACLs of a rule: one for each family and protocol that it names, and for its
// named ports one ACL and one port group for each port number. Pods refer to the port groups.
func (c *Cluster) ruleRows(subject selector, r rule, m match) (acls []ACL, groups []PortGroup) {
	if m.noPeer {
		return nil, nil
	}

	group := subject.group()
	addACLs := func(id, podGroup string, peers, ports []term) {
		for _, peer := range orAll(peers) {
			for _, port := range orAll(ports) {
				if peer.text == "" && port.text == "" {
					port.text = "ip" // policies are about IP packets only
				}

				acls = append(acls, ACL{
					Group:     group,
					Rule:      strings.Join(strings.Fields(id+" "+peer.name+" "+port.name), " "),
					Direction: r.lport,
					Priority:  allowPriority,
					Match:     conjunction(r.self+" == @"+podGroup, peer.text, port.text),
					Action:    "allow-related",
					Options:   r.options,
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

			podGroup := group // the pods to which the ACL applies
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

// uniqueRows removes duplicates: two ports of a rule may have the same name.
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
