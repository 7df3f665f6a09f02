package masquerade

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// protocols are nft's names of the protocols with ports.
var protocols = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// redirects returns the maps and chains that redirect traffic at frontends, or "" if there are
// none. For each family, the chain prerouting has up to three rules, each with a map of frontends:
//
//	ip daddr . meta l4proto . th dport vmap @ranged_ip          # drops clients outside a frontend's ranges
//	dnat ip to ip daddr . meta l4proto . th dport map @one_ip   # frontends with one target
//	ip daddr . meta l4proto . th dport vmap @several_ip         # others: a chain picks a target at random
//
// Frontends with equal lists of targets, or of ranges, share a chain.
func redirects(fronts map[verdict.ServiceKey]service.Redirect) string {
	r := redirector{fronts: fronts, chains: map[string]string{}}
	r.keys = slices.SortedFunc(maps.Keys(fronts), func(a, b verdict.ServiceKey) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	r.addFamily("ip", "ipv4_addr", true)
	r.addFamily("ip6", "ipv6_addr", false)

	if r.rules.Len() == 0 {
		return ""
	}

	return r.objects.String() + "\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n" + r.rules.String() + "\t}\n"
}

// redirector builds the text of redirects.
type redirector struct {
	fronts  map[verdict.ServiceKey]service.Redirect
	keys    []verdict.ServiceKey // of fronts, sorted
	chains  map[string]string    // names of chains, by list of targets or of clients
	objects strings.Builder      // maps and chains, which the rules refer to
	rules   strings.Builder      // of the chain prerouting
}

// addFamily adds the frontends of a family, which nft calls ip and whose addresses have the type
// kind. Frontends without a target of the family are left out.
func (r *redirector) addFamily(ip, kind string, is4 bool) {
	var single, several, ranged []string // elements: with one target, with several, with client ranges

	for _, k := range r.keys {
		to := slices.DeleteFunc(slices.Clone(r.fronts[k].To),
			func(a netip.AddrPort) bool { return a.Addr().Is4() != is4 })
		if k.Addr.Is4() != is4 || len(to) == 0 || protocols[k.Proto] == "" {
			continue
		}

		front := fmt.Sprintf("%s . %s . %d", k.Addr, protocols[k.Proto], k.Port)
		if from := r.fronts[k].From; len(from) > 0 {
			ranged = append(ranged, front+" : jump "+r.chainOfClients(ip, from))
		}

		if len(to) == 1 {
			single = append(single, front+" : "+target(to[0]))
		} else {
			several = append(several, front+" : goto "+r.chainOfTargets(ip, to))
		}
	}

	key := ip + " daddr . meta l4proto . th dport"
	if len(ranged) > 0 {
		r.addMap("ranged_"+ip, kind, "verdict", ranged)
		fmt.Fprintf(&r.rules, "\t\t%s vmap @ranged_%s\n", key, ip)
	}

	if len(single) > 0 {
		r.addMap("one_"+ip, kind, kind+" . inet_service", single)
		fmt.Fprintf(&r.rules, "\t\tdnat %s to %s map @one_%[1]s\n", ip, key)
	}

	if len(several) > 0 {
		r.addMap("several_"+ip, kind, "verdict", several)
		fmt.Fprintf(&r.rules, "\t\t%s vmap @several_%s\n", key, ip)
	}
}

// addMap adds a map from frontends to values of a type.
func (r *redirector) addMap(name, kind, value string, elements []string) {
	fmt.Fprintf(&r.objects,
		"\tmap %s {\n\t\ttype %s . inet_proto . inet_service : %s\n\t\telements = { %s }\n\t}\n",
		name, kind, value, strings.Join(elements, ", "))
}

// chainOfClients returns the name of the chain that drops packets from outside the prefixes. (Linux
// 6.12 of Debian rejects a set that combines frontends with client prefixes.)
func (r *redirector) chainOfClients(ip string, from []netip.Prefix) string {
	list := set(from, netip.Addr.IsValid)
	return r.chainNamed("only", list, fmt.Sprintf("%s saddr { %s } return\n\t\tdrop", ip, list))
}

// chainOfTargets returns the name of the chain that picks one of the targets. nft accepts a port
// change only after a match on a protocol with ports.
func (r *redirector) chainOfTargets(ip string, to []netip.AddrPort) string {
	var numbered []string
	for i, a := range to {
		numbered = append(numbered, fmt.Sprintf("%d : %s", i, target(a)))
	}

	list := strings.Join(numbered, ", ")

	rule := fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to numgen random mod %d map { %s }",
		ip, len(to), list)

	return r.chainNamed("one_of", list, rule)
}

// chainNamed returns the name of the chain for a list. It adds the chain on first use.
func (r *redirector) chainNamed(kind, list, rules string) string {
	name := r.chains[list]
	if name == "" {
		name = fmt.Sprintf("%s_%d", kind, len(r.chains))
		r.chains[list] = name
		fmt.Fprintf(&r.objects, "\tchain %s {\n\t\t%s\n\t}\n", name, rules)
	}

	return name
}

// target returns a target as a value of the maps.
func target(a netip.AddrPort) string { return fmt.Sprintf("%s . %d", a.Addr(), a.Port()) }
