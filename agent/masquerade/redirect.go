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

// redirects returns the chains that redirect traffic at frontends, or "" if there are none.
// Frontends with one target are elements of one map. Those with several targets use a chain per
// list of targets, which picks a random one.
func redirects(fronts map[verdict.ServiceKey]service.Redirect) string {
	r := redirector{fronts: fronts, chains: map[string]string{}}
	r.keys = slices.SortedFunc(maps.Keys(fronts), func(a, b verdict.ServiceKey) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	r.family("ip", "ipv4_addr", true)
	r.family("ip6", "ipv6_addr", false)

	if r.rules.Len() == 0 {
		return ""
	}

	return r.objects.String() + "\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n" + r.rules.String() + "\t}\n"
}

type redirector struct {
	fronts         map[verdict.ServiceKey]service.Redirect
	keys           []verdict.ServiceKey // sorted
	chains         map[string]string    // by list of targets or of clients
	objects, rules strings.Builder
}

func (r *redirector) family(ip, kind string, is4 bool) {
	var single, several, ranged []string

	for _, k := range r.keys {
		to := slices.DeleteFunc(slices.Clone(r.fronts[k].To),
			func(a netip.AddrPort) bool { return a.Addr().Is4() != is4 })
		if k.Addr.Is4() != is4 || len(to) == 0 || protocols[k.Proto] == "" {
			continue
		}

		front := fmt.Sprintf("%s . %s . %d", k.Addr, protocols[k.Proto], k.Port)
		if from := r.fronts[k].From; len(from) > 0 {
			ranged = append(ranged, front+" : jump "+r.only(ip, from))
		}

		if len(to) == 1 {
			single = append(single, front+" : "+target(to[0]))
		} else {
			several = append(several, front+" : goto "+r.chain(ip, to))
		}
	}

	front := ip + " daddr . meta l4proto . th dport"
	if len(ranged) > 0 {
		r.table("ranged_"+ip, kind, "verdict", ranged)
		fmt.Fprintf(&r.rules, "\t\t%s vmap @ranged_%s\n", front, ip)
	}

	if len(single) > 0 {
		r.table("one_"+ip, kind, kind+" . inet_service", single)
		fmt.Fprintf(&r.rules, "\t\tdnat %s to %s map @one_%[1]s\n", ip, front)
	}

	if len(several) > 0 {
		r.table("several_"+ip, kind, "verdict", several)
		fmt.Fprintf(&r.rules, "\t\t%s vmap @several_%s\n", front, ip)
	}
}

func (r *redirector) table(name, kind, value string, elements []string) {
	fmt.Fprintf(&r.objects,
		"\tmap %s {\n\t\ttype %s . inet_proto . inet_service : %s\n\t\telements = { %s }\n\t}\n",
		name, kind, value, strings.Join(elements, ", "))
}

// only returns the name of the chain that drops packets from outside the prefixes. (Linux 6.12 of
// Debian rejects a set that combines frontends with client prefixes.)
func (r *redirector) only(ip string, from []netip.Prefix) string {
	list := set(from, netip.Addr.IsValid)
	return r.named("only", list, fmt.Sprintf("%s saddr { %s } return\n\t\tdrop", ip, list))
}

// chain returns the name of the chain that picks one of the targets. nft accepts a port change only
// after a match on a protocol with ports.
func (r *redirector) chain(ip string, to []netip.AddrPort) string {
	var numbered []string
	for i, a := range to {
		numbered = append(numbered, fmt.Sprintf("%d : %s", i, target(a)))
	}

	list := strings.Join(numbered, ", ")

	rule := fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to numgen random mod %d map { %s }",
		ip, len(to), list)

	return r.named("one_of", list, rule)
}

// named returns the name of the chain for that list. It writes the chain on first use.
func (r *redirector) named(kind, list, rules string) string {
	name := r.chains[list]
	if name == "" {
		name = fmt.Sprintf("%s_%d", kind, len(r.chains))
		r.chains[list] = name
		fmt.Fprintf(&r.objects, "\tchain %s {\n\t\t%s\n\t}\n", name, rules)
	}

	return name
}

func target(a netip.AddrPort) string { return fmt.Sprintf("%s . %d", a.Addr(), a.Port()) }
