package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// This file renders the loadBalancerSourceRanges of Services. Only clients in these ranges may
// reach the announced addresses of a Service (services.Service.Announced): ACLs drop the packets of
// all others.

// clientsGroup is a port group with one port of every switch through which clients send: nodes'
// switches and external switches of gateway routers. Its ACLs apply to all these ports, so the
// number of a Service's ACLs does not depend on the number of nodes.
const clientsGroup = "ovnebpf_clients"

// sourcesPriority is higher than the priority of every policy ACL.
const sourcesPriority = 1100

// sourceRows returns ACLs that drop packets to the announced addresses of a Service from outside
// its loadBalancerSourceRanges. The ACLs are evaluated before load balancing, while packets still
// have these addresses. They are for servedPorts, so vipsByScope must have been called. Connections
// of host sockets do not pass these ACLs: the agents refuse them (agent/service).
func (s *service) sourceRows() []Row {
	if len(s.Announced) == 0 {
		return nil
	}

	if s.TooManySourceRanges() {
		s.shortfall.add("loadBalancerSourceRanges: more than %d: no client may come",
			services.MaxSourceRanges)
	}

	var rows []Row

	for _, is4 := range []bool{true, false} {
		announced, ranges := services.OfFamily(s.Announced, is4), s.SourceRanges(is4)
		if len(ranges) == 0 || len(announced) == 0 {
			continue
		}

		refused, ok := subtract(wholeFamily(is4), ranges, services.MaxSourcePrefixes)
		if !ok {
			s.shortfall.add("loadBalancerSourceRanges: what is outside of those of %s is more than %d prefixes: no client may come",
				services.FamilyName(is4), services.MaxSourcePrefixes)
			refused = []netip.Prefix{wholeFamily(is4)}
		}

		if len(refused) > 0 {
			rows = append(rows, s.sourcesACLs(is4, announced, prefixStrings(refused))...)
		}
	}

	return rows
}

// guardedPorts is a set of ports of one protocol that are served at the same announced addresses.
type guardedPorts struct {
	proto     corev1.Protocol
	addresses []string // sorted
	ports     []int
}

// sourcesACLs returns the ACLs of one family. Ports that are served at the same addresses share an
// ACL, because there may be many refused prefixes.
func (s *service) sourcesACLs(is4 bool, announced []netip.Addr, refused []string) []Row {
	var rows []Row

	size := 0 // bytes of refused prefixes in all matches
	for _, ports := range s.groupServedPorts(announced) {
		if size += len(strings.Join(refused, ", ")); size > maxServiceBytes {
			s.shortfall.add("loadBalancerSourceRanges: their ACLs would be longer than %d bytes: no client may come",
				maxServiceBytes)

			refused = []string{wholeFamily(is4).String()}
		}

		rows = append(rows, s.sourcesACL(*ports, familyWord(is4), refused))
	}

	return rows
}

// groupServedPorts returns the ports that are served at announced addresses of one family, in the
// order of the Service's ports.
func (s *service) groupServedPorts(announced []netip.Addr) []*guardedPorts {
	var out []*guardedPorts

	byAddresses := map[string]*guardedPorts{}

	for _, port := range s.servedPorts {
		var addresses []string

		for _, a := range port.external {
			if slices.Contains(announced, a) {
				addresses = append(addresses, a.String())
			}
		}

		if len(addresses) == 0 {
			continue
		}

		slices.Sort(addresses)

		id := string(port.proto) + " " + strings.Join(addresses, " ")

		group := byAddresses[id]
		if group == nil {
			group = &guardedPorts{proto: port.proto, addresses: addresses}
			byAddresses[id] = group
			out = append(out, group)
		}

		group.ports = append(group.ports, port.number)
	}

	return out
}

// sourcesACL returns the ACL that drops packets to the ports from the refused addresses.
func (s *service) sourcesACL(g guardedPorts, family string, refused []string) Row {
	slices.Sort(g.ports)
	g.ports = slices.Compact(g.ports)
	proto := strings.ToLower(string(g.proto))
	to, from := egress(), ingress() // their matches compare destinations, and sources

	return ACL{
		Group:     clientsGroup,
		Rule:      strings.Join([]string{s.Namespace, s.Name, family, proto, strconv.Itoa(g.ports[0])}, " "),
		Direction: to.aclDirection,
		Priority:  sourcesPriority,
		Action:    "drop",
		Match: conjunction(to.setMatch(family, g.addresses), proto+".dst == "+numberSet(g.ports),
			from.setMatch(family, slices.Clone(refused))),
	}
}
