package plan

import (
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// The cost of a policy is the number of flows that ovn-controller makes of its ACLs on each node.
// In each direction it is the sum over all ACLs of
//
//	2 × families × values
//
// For example, an ACL with 100 IPv4 prefixes and 2 ports has 100 + 2 + 1 values, and costs 206
// flows. The rules are:
//
//   - northd makes two logical flows of an ACL that allows related packets: one for new
//     connections, one for established ones.
//   - An ACL without a peer compares no address, so OVN makes its flows for IPv4 and for IPv6.
//   - Each prefix, each port and each mask of a port range is a value. Values of one field add up.
//     If an ACL has several addresses and several ports, OVN makes a conjunction of the two fields,
//     so they add up, too, and the conjunction is one more flow. A single value of a field is in
//     each flow of the other one.
//   - A named port has ACLs for each number that pods have for it.
//
// A selector counts as one address of each family and the policy's own pods as one pod, because no
// policy decides how many pods exist. TestPolicyCost in controller/nb compares the sum with the
// flows of a real ovn-controller. OVN leaves out a value that is part of another one, for example
// 10.1.0.0/16 beside 10.0.0.0/8, so the sum may be higher than the number of flows.

// flowsPerMatch is the number of logical flows that northd makes of an ACL: one for new
// connections, and one for established ones.
const flowsPerMatch = 2

// policyCost is the cost of one version of a policy.
type policyCost struct {
	fixed perSide[int] // all flows except those of named ports
	named []namedCost  // each named port of each rule
}

// namedCost is the cost of a named port in one rule: flows for each of the numbers.
type namedCost struct {
	namedPort
	side    int
	flows   int
	numbers []int // that pods have for the port now, sorted
}

// costOf returns the cost of a policy, which may be nil. Its named ports have no numbers yet, see
// readNumbers.
func costOf(p *networkingv1.NetworkPolicy) policyCost {
	var cost policyCost

	u, ok := usageOf(p)
	if !ok {
		return cost
	}

	var wrong shortfall // for match; the plan of the policy reports it

	prefixes := maxPolicyPrefixes
	for _, r := range rulesOf(p) {
		m := r.match(&wrong, &prefixes)
		if m.noPeer {
			continue
		}

		if !m.noPort {
			cost.fixed[r.side] += aclFlows(m.peers, m.ports)
		}

		seen := map[string]bool{} // two ports of a rule may have the same name
		for _, n := range r.namedPorts(u.subject) {
			if text := n.canonicalText(); !seen[text] {
				seen[text] = true

				// The name of the port group does not affect the number of flows.
				cost.named = append(cost.named, namedCost{
					namedPort: n,
					side:      r.side,
					flows:     aclFlows(r.namedPeers(m, ""), []term{{values: 1}}),
				})
			}
		}
	}

	return cost
}

// aclFlows returns the flows of the ACLs of a rule, one ACL for each pair of a peer and a port (see
// ruleRows).
func aclFlows(peers, ports []term) int {
	n := 0

	for _, peer := range orAll(peers) {
		families := 1
		if peer.text == "" { // the ACL compares no address
			families = 2
		}

		for _, port := range orAll(ports) {
			values := peer.values * port.values
			if peer.values > 1 && port.values > 1 {
				values = peer.values + port.values + 1
			}

			n += flowsPerMatch * families * values
		}
	}

	return n
}

// flows returns the flows of the policy.
func (cost policyCost) flows() perSide[int] {
	out := cost.fixed
	for _, n := range cost.named {
		out[n.side] += n.flows * len(n.numbers)
	}

	return out
}

// readNumbers sets the numbers that pods have for the named ports.
func (cost policyCost) readNumbers(c *Cluster) {
	for i := range cost.named {
		cost.named[i].numbers = c.namedPortNumbers(cost.named[i].namedPort)
	}
}

// updateNumbers does the same as readNumbers, but only for the numbers that one version of a pod
// has. The pod may have changed or ended since. It does not read all pods for a number that another
// pod still has.
func (cost policyCost) updateNumbers(c *Cluster, pod *corev1.Pod) {
	namespace := c.Namespace(pod.Namespace)

	for i := range cost.named {
		n := &cost.named[i]

		numbers := n.numbersOf(pod)
		if len(numbers) == 0 || !n.matches(pod, namespace) {
			continue
		}

		for _, number := range numbers {
			at, had := slices.BinarySearch(n.numbers, number)
			switch has := c.hasNumber(n.namedPort, number, pod); {
			case has && !had:
				n.numbers = slices.Insert(n.numbers, at, number)
			case had && !has:
				n.numbers = slices.Delete(n.numbers, at, at+1)
			}
		}
	}
}

// rangeMasks returns the number of masked values to which OVN expands the comparison first <= x <=
// last (expr_simplify_relational and crush_cmps in lib/expr.c). OVN makes for
//   - first <= x: a value of first itself, and one of each zero bit of first;
//   - x <= last: a value of last itself, and one of each one bit of last. OVN drops x <= 65535,
//     which is always true.
//
// It then combines the values of both comparisons that overlap: those of the bits below the highest
// one in which first and last differ. A smaller number of masks may be possible.
func rangeMasks(first, last int32) int {
	const all = 1<<16 - 1

	a, b := uint16(first), uint16(last) //nolint:gosec // checkPort has checked them
	switch {
	case a == b:
		return 1
	case b == all:
		return 1 + bits.OnesCount16(^a)
	}

	below := uint16(1)<<(bits.Len16(a^b)-1) - 1 // mask of these bits

	return 1 + bits.OnesCount16(^a&below) + 1 + bits.OnesCount16(b&below)
}

// PolicyFlows returns the flows that the rules of a policy cost each node, also if they exceed a
// bound. It returns 0 for a policy that does not exist or applies to no pod.
func (c *Cluster) PolicyFlows(namespace, name string) (ingress, egress int) {
	cost := costOf(get[networkingv1.NetworkPolicy](c, PolicyKey(namespace, name)))
	cost.readNumbers(c)
	flows := cost.flows()

	return flows[ingressSide], flows[egressSide]
}
