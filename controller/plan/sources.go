package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// clientsGroup is a port group with a port of every switch by which clients come: the nodes'
// switches, and those before gateway routers. Its ACLs are in force there, for all ports, so a
// Service has one, whatever the number of nodes.
const clientsGroup = "ovnebpf_clients"

// sourcesPriority is above that of every ACL of policies.
const sourcesPriority = 1100

// sourceRows drop, before it is translated, what comes from outside of the Service's
// loadBalancerSourceRanges to an address that its load balancer announces. Sockets of hosts
// are refused by their nodes (agent/service).
func (s *service) sourceRows() []Row {
	announced := s.announced()
	var rows []Row
	for _, is4 := range []bool{true, false} {
		refused := outside(annotation.SourceRanges(s.obj.Spec.LoadBalancerSourceRanges, is4), is4)
		if len(refused) == 0 || len(ofFamily(announced, is4)) == 0 {
			continue
		}
		for _, port := range s.obj.Spec.Ports {
			var at []string
			for _, f := range s.fronts(port, is4) {
				if f.external && f.of == nil && slices.Contains(announced, f.addr.Addr()) {
					at = append(at, f.addr.Addr().String())
				}
			}
			if len(at) > 0 {
				rows = append(rows, s.sourcesACL(port, family(refused[0].Addr()), at, prefixStrings(refused)))
			}
		}
	}
	return rows
}

func (s *service) sourcesACL(port corev1.ServicePort, family string, at, refused []string) Row {
	proto, number := strings.ToLower(string(annotation.Protocol(port.Protocol))), strconv.Itoa(int(port.Port))
	to, from := rule{direction: egress()}, rule{direction: ingress()}
	return ACL{
		Group: clientsGroup, Rule: strings.Join([]string{s.obj.Namespace, s.obj.Name, family, proto, number}, " "),
		Direction: to.lport, Priority: sourcesPriority, Action: "drop",
		Match: conjunction(to.setMatch(family, at), proto+".dst == "+number, from.setMatch(family, refused)),
	}
}

// announced are the addresses that the load balancer announces and that are not external IPs,
// too: those are open to all, as kube-proxy has it.
func (s *service) announced() []netip.Addr {
	open := parseAddrs(s.obj.Spec.ExternalIPs, "")
	return slices.DeleteFunc(parseAddrs(ingressAddresses(s.obj), ""), func(a netip.Addr) bool { return slices.Contains(open, a) })
}

// outside are the addresses of the family that are in none of the ranges, as few prefixes;
// none if there are no ranges. (OVN would make the product of all bits of a chain of "!=".)
func outside(ranges []netip.Prefix, is4 bool) []netip.Prefix {
	if len(ranges) == 0 {
		return nil
	}
	out := []netip.Prefix{netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	if is4 {
		out[0] = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	for _, r := range ranges {
		out = without(out, r)
	}
	return out
}
