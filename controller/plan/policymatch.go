package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// match has the peers and ports of a rule as terms of OVN's expression language (ovn-sb(5), column
// match of Logical_Flow). It has one term per family of the peers and one per protocol of the
// ports, and ruleRows makes an ACL of each pair.
//
// One ACL with a combined match, like "(ip4.src == {…} || ip6.src == {…}) && (tcp.dst == {…} ||
// udp.dst == {…})", would be expensive: ovn-controller makes a flow for each combination of an
// address and a port. 500 prefixes with 64 port ranges are 660,000 flows and 1.5 GB. Separate ACLs
// are some hundreds of conjunctive flows.
type match struct {
	peers  []term // empty: all, unless noPeer is set
	noPeer bool   // the rule has peers, but all are invalid or beyond the bounds: it allows nothing
	ports  []term // empty: all, unless noPort is set
	noPort bool   // the rule has ports, but all are named, invalid or beyond the bounds
}

// term is a comparison in one family or protocol.
type term struct {
	name   string // "ip4", "ip6" or the protocol; part of the ACL's ID
	text   string // "": compares nothing
	values int    // the masked values to which OVN expands the comparison (policycost.go)
}

// orAll returns the terms, or one that compares nothing if there are none.
func orAll(terms []term) []term {
	if len(terms) == 0 {
		return []term{{values: 1}}
	}

	return terms
}

// match returns the match of the rule, and adds malformed parts to wrong. It subtracts the prefixes
// of the rule's blocks from remainingPrefixes, which are those that the policy may still have.
func (r rule) match(wrong *shortfall, remainingPrefixes *int) match {
	var m match

	m.peers, m.noPeer = r.peerTerms(wrong, remainingPrefixes)
	m.ports, m.noPort = r.portTerms(wrong)

	return m
}

// peerTerms returns one comparison per family, whatever the number of peers: one set has the
// address sets of the groups and the prefixes of all blocks. noPeer is set if the rule has peers,
// but no valid one.
func (r rule) peerTerms(wrong *shortfall, remainingPrefixes *int) (terms []term, noPeer bool) {
	if len(r.peers) == 0 {
		return nil, false
	}

	var v4, v6 []string

	ruleRemaining := maxRulePrefixes

	for i, peer := range r.peers {
		if isMarked(r.excessPeers, i) {
			continue
		}

		field := fmt.Sprintf("spec.%s[%d].%s[%d]", r.rulesField, r.index, r.peersField, i)

		switch {
		case selectsPods(peer):
			s := peerSelector(r.policy.Namespace, peer)
			if err := s.check(); err == nil {
				v4, v6 = append(v4, "$"+s.group()+"_ip4"), append(v6, "$"+s.group()+"_ip6")
			} else {
				wrong.add("%s.%v", field, err)
			}
		case peer.IPBlock == nil:
			wrong.add("%s: neither podSelector nor namespaceSelector nor ipBlock", field)
		case peer.PodSelector != nil || peer.NamespaceSelector != nil:
			wrong.add("%s: ipBlock together with a selector", field)
		default:
			prefixes, err := blockPrefixes(peer.IPBlock, min(ruleRemaining, *remainingPrefixes))
			if err != nil {
				wrong.add("%s.ipBlock.%v", field, err)
			}

			ruleRemaining -= len(prefixes)
			*remainingPrefixes -= len(prefixes)

			for _, p := range prefixes {
				if p.Addr().Is4() {
					v4 = append(v4, p.String())
				} else {
					v6 = append(v6, p.String())
				}
			}
		}
	}

	terms = r.familyTerms(v4, v6)

	return terms, len(terms) == 0
}

// groupTerms returns terms that match if the peer is in the port group.
func (d direction) groupTerms(group string) []term {
	return d.familyTerms([]string{"$" + group + "_ip4"}, []string{"$" + group + "_ip6"})
}

// familyTerms returns a term for each family with values.
func (d direction) familyTerms(v4, v6 []string) []term {
	terms := []term{d.setTerm("ip4", v4), d.setTerm("ip6", v6)}
	return slices.DeleteFunc(terms, func(t term) bool { return t.text == "" })
}

// setMatch returns the text of setTerm.
func (d direction) setMatch(family string, set []string) string { return d.setTerm(family, set).text }

// setTerm returns the comparison of the peer's address with a set of addresses, prefixes and names
// of address sets ($name). Its text is "" for an empty set. It sorts the set.
func (d direction) setTerm(family string, set []string) term {
	slices.Sort(set)
	set = slices.Compact(set)

	out := term{name: family, values: 1}

	switch {
	case len(set) == 0:
		return term{}
	case slices.Contains(set, "0.0.0.0/0") || slices.Contains(set, "::/0"):
		out.text = family
	case len(set) == 1:
		out.text = family + "." + d.peer + " == " + set[0]
	default:
		out.text = family + "." + d.peer + " == {" + strings.Join(set, ", ") + "}"
		out.values = len(set)
	}

	return out
}

// blockPrefixes returns the block without its exceptions, as at most limit prefixes. It does not
// leave the exceptions to OVN, which would expand a chain of "!=" to the product of all exceptions'
// bits.
func blockPrefixes(b *networkingv1.IPBlock, limit int) ([]netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("cidr %q: not an address and a prefix length", b.CIDR)
	}

	holes := make([]netip.Prefix, 0, len(b.Except))
	for i, s := range b.Except {
		except, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("except[%d] %q: not an address and a prefix length", i, s)
		}

		if !cidr.Overlaps(except) || except.Bits() <= cidr.Bits() {
			return nil, fmt.Errorf("except[%d] %q: not inside of %s", i, s, b.CIDR)
		}

		holes = append(holes, except)
	}

	out, ok := subtract(cidr, holes, limit)
	if !ok {
		return nil, fmt.Errorf("cidr: the blocks without their exceptions are more than %d prefixes of a rule or %d of a policy",
			maxRulePrefixes, maxPolicyPrefixes)
	}

	return out, nil
}

// portTerms returns one comparison per protocol. It covers the ports with a number and the
// protocols without a port. Named ports have ACLs of their own (ruleRows). noPort is set if the
// rule has ports, but none for these comparisons.
func (r rule) portTerms(wrong *shortfall) (terms []term, noPort bool) {
	if len(r.ports) == 0 {
		return nil, false
	}

	// All by protocol: single ports, whether all ports are allowed, and ranges.
	single, whole := map[string][]int{}, map[string]bool{}
	ranges := map[string]map[string]int{"tcp": {}, "udp": {}, "sctp": {}} // comparison → its masks

	for i, port := range r.ports {
		if isMarked(r.excessPorts, i) {
			continue
		}

		proto := portProtocol(port)
		if err := checkPort(port); err != nil {
			wrong.add("spec.%s[%d].ports[%d].%v", r.rulesField, r.index, i, err)
			continue
		}

		switch {
		case port.Port == nil:
			whole[proto] = true
		case port.Port.Type == intstr.String: // a named port
		case port.EndPort != nil:
			text := fmt.Sprintf("%d <= %s.dst <= %d", port.Port.IntVal, proto, *port.EndPort)
			ranges[proto][text] = rangeMasks(port.Port.IntVal, *port.EndPort)
		default:
			single[proto] = append(single[proto], int(port.Port.IntVal))
		}
	}

	for _, proto := range []string{"tcp", "udp", "sctp"} {
		switch {
		case whole[proto]:
			terms = append(terms, term{name: proto, text: proto, values: 1})
		case len(single[proto])+len(ranges[proto]) > 0:
			terms = append(terms, portTerm(proto, single[proto], ranges[proto]))
		}
	}

	return terms, len(terms) == 0
}

// portTerm returns the comparison with single ports and with ranges. ranges maps the comparison of
// each range to the number of its masks.
func portTerm(proto string, single []int, ranges map[string]int) term {
	slices.Sort(single)
	single = slices.Compact(single)

	var comparisons []string
	if len(single) > 0 {
		comparisons = append(comparisons, proto+".dst == "+numberSet(single))
	}

	values := len(single)

	for _, comparison := range slices.Sorted(maps.Keys(ranges)) {
		comparisons = append(comparisons, comparison)
		values += ranges[comparison]
	}

	return term{name: proto, text: disjunction(comparisons...), values: values}
}

// numberSet returns the numbers in OVN's expression language: "80" or "{80, 443}".
func numberSet(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}

	if len(texts) == 1 {
		return texts[0]
	}

	return "{" + strings.Join(texts, ", ") + "}"
}

// portProtocol returns the port's protocol in OVN's spelling. The default is TCP.
func portProtocol(p networkingv1.NetworkPolicyPort) string {
	if p.Protocol == nil {
		return "tcp"
	}

	return strings.ToLower(string(services.Protocol(*p.Protocol)))
}

// checkPort returns the error of a malformed port of a rule, or nil.
func checkPort(p networkingv1.NetworkPolicyPort) error {
	if p.Protocol != nil {
		switch *p.Protocol {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "":
		default:
			return fmt.Errorf("protocol: %q is not TCP, UDP or SCTP", *p.Protocol)
		}
	}

	switch {
	case p.Port == nil && p.EndPort != nil:
		return fmt.Errorf("endPort: %d without a port", *p.EndPort)
	case p.Port == nil:
		return nil
	case p.Port.Type == intstr.String && p.Port.StrVal == "":
		return fmt.Errorf("port: empty")
	case p.Port.Type == intstr.String && p.EndPort != nil:
		return fmt.Errorf("endPort: %d with a port by name", *p.EndPort)
	case p.Port.Type == intstr.String:
		return nil
	case !validPort(p.Port.IntVal):
		return fmt.Errorf("port: %d is not 1 to 65535", p.Port.IntVal)
	case p.EndPort != nil && (!validPort(*p.EndPort) || *p.EndPort < p.Port.IntVal):
		return fmt.Errorf("endPort: %d is not %d to 65535", *p.EndPort, p.Port.IntVal)
	}

	return nil
}

func validPort(n int32) bool { return n >= 1 && n <= 65535 }

// conjunction joins the non-empty terms with &&. Each term may be a disjunction.
func conjunction(terms ...string) string {
	terms = slices.DeleteFunc(terms, func(s string) bool { return s == "" })
	return strings.Join(terms, " && ")
}

// disjunction joins the non-empty terms with ||. It adds parentheses to several terms, and to a
// range, which is several comparisons.
func disjunction(terms ...string) string {
	terms = slices.DeleteFunc(terms, func(s string) bool { return s == "" })

	text := strings.Join(terms, " || ")
	if len(terms) > 1 || strings.Contains(text, "<=") {
		return "(" + text + ")"
	}

	return text
}
