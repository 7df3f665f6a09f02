package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// clientsGroup is a port group with a port of every switch by which clients come: the nodes'
// switches, and those before gateway routers. Its ACLs are in force there, for all ports, so a
// Service has one, whatever the number of nodes.
const clientsGroup = "ovnebpf_clients"

// sourcesPriority is above that of every ACL of policies.
const sourcesPriority = 1100

// sourceRows drop, before it is translated, what comes from outside of the Service's
// loadBalancerSourceRanges to an address that its load balancer announces. Sockets of hosts
// are refused by their nodes (agent/service). They are made of what place has served.
func (s *service) sourceRows() []Row {
	if len(s.Announced) == 0 {
		return nil
	}
	if s.TooManySourceRanges() {
		s.shortfall.add("loadBalancerSourceRanges: more than %d: no client may come", services.MaxSourceRanges)
	}
	var rows []Row
	for _, is4 := range []bool{true, false} {
		announced, of := services.OfFamily(s.Announced, is4), s.SourceRanges(is4)
		if len(of) == 0 || len(announced) == 0 {
			continue
		}
		refused, ok := subtract(wholeFamily(is4), of, maxSourcePrefixes)
		if !ok {
			s.shortfall.add("loadBalancerSourceRanges: what is outside of those of %s is more than %d prefixes: no client may come", services.FamilyName(is4), maxSourcePrefixes)
			refused = []netip.Prefix{wholeFamily(is4)}
		}
		if len(refused) > 0 {
			rows = append(rows, s.sourcesACLs(is4, announced, prefixStrings(refused))...)
		}
	}
	return rows
}

// guarded are ports of one protocol that are served at the same announced addresses.
type guarded struct {
	proto corev1.Protocol
	at    []string
	ports []int
}

// sourcesACLs are one ACL for all ports that are served at the same addresses: the prefixes
// are many.
func (s *service) sourcesACLs(is4 bool, announced []netip.Addr, refused []string) []Row {
	var order []string
	groups := map[string]*guarded{}
	for _, port := range s.served {
		var at []string
		for _, a := range port.at {
			if slices.Contains(announced, a) {
				at = append(at, a.String())
			}
		}
		if len(at) == 0 {
			continue
		}
		slices.Sort(at)
		id := string(port.proto) + " " + strings.Join(at, " ")
		if groups[id] == nil {
			groups[id], order = &guarded{proto: port.proto, at: at}, append(order, id)
		}
		groups[id].ports = append(groups[id].ports, port.number)
	}
	var rows []Row
	size := 0
	for _, id := range order {
		if size += len(strings.Join(refused, ", ")); size > maxServiceText {
			s.shortfall.add("loadBalancerSourceRanges: their ACLs would be longer than %d bytes: no client may come", maxServiceText)
			refused = []string{wholeFamily(is4).String()}
		}
		rows = append(rows, s.sourcesACL(*groups[id], familyWord(is4), refused))
	}
	return rows
}

func (s *service) sourcesACL(g guarded, family string, refused []string) Row {
	slices.Sort(g.ports)
	g.ports = slices.Compact(g.ports)
	proto := strings.ToLower(string(g.proto))
	to, from := rule{direction: egress()}, rule{direction: ingress()}
	return ACL{
		Group: clientsGroup, Rule: strings.Join([]string{s.Namespace, s.Name, family, proto, strconv.Itoa(g.ports[0])}, " "),
		Direction: to.lport, Priority: sourcesPriority, Action: "drop",
		Match: conjunction(to.setMatch(family, g.at), proto+".dst == "+set(g.ports), from.setMatch(family, slices.Clone(refused))),
	}
}

func wholeFamily(is4 bool) netip.Prefix {
	if is4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// familyWord is the family in OVN's matches.
func familyWord(is4 bool) string {
	if is4 {
		return "ip4"
	}
	return "ip6"
}
