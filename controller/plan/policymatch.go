package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// match is the match of a rule without its subject, in OVN's expressions. It has one term per
// family and one per protocol, and each pair becomes an ACL. In a combined match like "(ip4.src ==
// {…} || ip6.src == {…}) && (tcp.dst == {…} || udp.dst == {…})" ovn-controller makes a flow for
// each combination of an address and a port: 500 prefixes with 64 port ranges are 660,000 flows and
// 1.5 GB. Separate ACLs are some hundreds of conjunctive flows.
type match struct {
	peers  []term // empty: all
	noPeer bool   // no peer is valid
	ports  []term // empty: all
	noPort bool   // no port has a number
}

// term is a comparison in one family or protocol. Its name distinguishes it from the other terms of
// its rule.
type term struct {
	name, text string
	values     int // the masked values to which OVN expands the comparison (policycost.go)
}

// orAll returns the terms, or an empty one if there are none.
func orAll(terms []term) []term {
	if len(terms) == 0 {
		return []term{{values: 1}}
	}

	return terms
}

// match adds malformed parts to wrong. It subtracts the prefixes of its blocks from the prefixes
// that the policy has left.
func (r rule) match(wrong *shortfall, prefixes *int) match {
	var m match

	m.peers, m.noPeer = r.peerMatch(wrong, prefixes)
	m.ports, m.noPort = r.portMatch(wrong)

	return m
}

// peerMatch returns one comparison per family, whatever the number of peers: one set has the
// address sets of the groups and the prefixes of all blocks.
func (r rule) peerMatch(wrong *shortfall, left *int) (terms []term, noPeer bool) {
	if len(r.from) == 0 {
		return nil, false
	}

	var v4, v6 []string

	own := maxRulePrefixes

	for i, peer := range r.from {
		if isMarked(r.excessPeers, i) {
			continue
		}

		field := fmt.Sprintf("spec.%s[%d].%s[%d]", r.rules, r.index, r.peers, i)

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
			prefixes, err := blockPrefixes(peer.IPBlock, min(own, *left))
			if err != nil {
				wrong.add("%s.ipBlock.%v", field, err)
			}

			own, *left = own-len(prefixes), *left-len(prefixes)
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
func (r rule) groupTerms(group string) []term {
	return r.familyTerms([]string{"$" + group + "_ip4"}, []string{"$" + group + "_ip6"})
}

func (r rule) familyTerms(v4, v6 []string) []term {
	terms := []term{r.setTerm("ip4", v4), r.setTerm("ip6", v6)}
	return slices.DeleteFunc(terms, func(t term) bool { return t.text == "" })
}

func (r rule) setMatch(family string, set []string) string { return r.setTerm(family, set).text }

func (r rule) setTerm(family string, set []string) term {
	slices.Sort(set)

	set = slices.Compact(set)
	switch {
	case len(set) == 0:
		return term{}
	case slices.Contains(set, "0.0.0.0/0") || slices.Contains(set, "::/0"):
		return term{family, family, 1}
	case len(set) == 1:
		return term{family, family + "." + r.peer + " == " + set[0], 1}
	}

	return term{family, family + "." + r.peer + " == {" + strings.Join(set, ", ") + "}", len(set)}
}

// blockPrefixes returns the block without its exceptions, as at most the given number of prefixes.
// OVN would expand a chain of "!=" to the product of all exceptions' bits.
func blockPrefixes(b *networkingv1.IPBlock, most int) ([]netip.Prefix, error) {
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

	out, ok := subtract(cidr, holes, most)
	if !ok {
		return nil, fmt.Errorf("cidr: the blocks without their exceptions are more than %d prefixes of a rule or %d of a policy",
			maxRulePrefixes, maxPolicyPrefixes)
	}

	return out, nil
}

// portMatch covers the ports with a number and those without a port. Named ports have ACLs of their
// own (ruleRows).
func (r rule) portMatch(wrong *shortfall) (terms []term, none bool) {
	if len(r.ports) == 0 {
		return nil, false
	}

	single, whole := map[string][]int{}, map[string]bool{}
	ranges := map[string]map[string]int{"tcp": {}, "udp": {}, "sctp": {}} // the masks of each range

	for i, port := range r.ports {
		if isMarked(r.excessPorts, i) {
			continue
		}

		proto := portProtocol(port)
		if err := checkPort(port); err != nil {
			wrong.add("spec.%s[%d].ports[%d].%v", r.rules, r.index, i, err)
			continue
		}

		switch {
		case port.Port == nil:
			whole[proto] = true
		case port.Port.Type == intstr.String:
		case port.EndPort != nil:
			text := fmt.Sprintf("%d <= %s.dst <= %d", port.Port.IntVal, proto, *port.EndPort)
			ranges[proto][text] = rangeMasks(port.Port.IntVal, *port.EndPort)
		default:
			single[proto] = append(single[proto], int(port.Port.IntVal))
		}
	}

	for _, proto := range []string{"tcp", "udp", "sctp"} {
		if whole[proto] {
			terms = append(terms, term{proto, proto, 1})
			continue
		}

		slices.Sort(single[proto])
		numbers := slices.Compact(single[proto])

		values, texts := len(numbers), slices.Sorted(maps.Keys(ranges[proto]))
		for _, masks := range ranges[proto] {
			values += masks
		}

		if len(numbers) > 0 {
			texts = slices.Insert(texts, 0, proto+".dst == "+numberSet(numbers))
		}

		if text := disjunction(texts...); text != "" {
			terms = append(terms, term{proto, text, values})
		}
	}

	return terms, len(terms) == 0
}

func numberSet(numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprint(numbers[0])
	}

	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]") + "}"
}

// portProtocol returns the port's protocol in OVN's spelling.
func portProtocol(p networkingv1.NetworkPolicyPort) string {
	if p.Protocol == nil {
		return "tcp"
	}

	return strings.ToLower(string(services.Protocol(*p.Protocol)))
}

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

// disjunction joins the non-empty terms with ||, in parentheses if needed.
func disjunction(terms ...string) string {
	terms = slices.DeleteFunc(terms, func(s string) bool { return s == "" })

	text := strings.Join(terms, " || ")
	if len(terms) > 1 || strings.Contains(text, "<=") {
		return "(" + text + ")"
	}

	return text
}
