package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Profile is a row with the samples of where its instructions went.
type Profile struct {
	Row Row `json:"row"`
	// Stacks counts samples by call stack: function names, the innermost first,
	// separated by semicolons; a module's or program's has " [module]" behind it.
	Stacks map[string]int `json:"stacks"`
}

// part is a part of the packet's path, with the beginnings of the names of the
// functions that are it. What matches none (memory, locks, checksums) belongs to
// the part that called it.
type part struct {
	name      string
	functions []string
}

// parts are in the order in which they are shown. The first that matches counts.
var parts = []part{
	{"hash of the flow", []string{"skb_get_hash", "__skb_get_hash", "__skb_flow_dissect", "flow_hash_from_keys", "__siphash_unaligned"}},
	{"our programs", []string{"bpf_prog_", "bpf_trampoline_"}},
	{"tc hook and redirect", []string{"sch_handle_", "tcx_run", "tc_run", "skb_do_redirect", "__bpf_redirect", "__bpf_tx_skb", "dev_bpf_", "bpf_redirect", "bpf_dev_bypass"}},
	{"OVS: its Geneve port", []string{"ovs_vport_send", "netdev_frame_hook", "netdev_port_receive", "ovs_vport_receive", "ovs_netdev_", "ovs_ip_tun_", "ovs_tun_", "internal_dev_"}},
	{"OVS: flow key and lookup", []string{"ovs_flow_key_", "key_extract", "parse_ip", "ovs_flow_tbl_", "flow_lookup", "masked_flow_lookup", "ovs_flow_stats_", "ovs_flow_cmd"}},
	{"OVS: actions", []string{"[openvswitch]"}},
	{"conntrack and NAT", []string{"[nf_conntrack]", "[nf_nat]", "[nf_defrag", "nf_ct_", "nf_nat_", "nf_conntrack", "[nf_tables]", "[nft_", "[nf_", "nf_hook_slow", "nft_"}},
	{"tunnel: Geneve and UDP encapsulation", []string{"[geneve]", "[udp_tunnel]", "[ip_tunnel]", "iptunnel_", "udp_tunnel", "setup_udp_tunnel", "gro_cell", "udp_queue_rcv", "metadata_dst", "tun_dst", "dst_cache_", "ip_tunnel_"}},
	{"veth, softirq and backlog", []string{"[veth]", "veth_", "process_backlog", "net_rx_action", "enqueue_to_backlog", "netif_rx", "__netif_rx", "napi_", "__napi_", "do_softirq", "__do_softirq", "handle_softirqs", "__local_bh", "dev_gro_", "gro_", "irq_exit"}},
	{"device layer", []string{"__dev_queue_xmit", "dev_queue_xmit", "dev_hard_start_xmit", "__netif_receive_skb", "netif_receive_skb", "validate_xmit", "netif_skb_features", "sch_direct", "__qdisc", "qdisc_", "netdev_core_pick", "netdev_pick", "passthru_features", "skb_network_protocol", "eth_type_trans", "deliver_skb", "dev_forward", "__dev_forward", "skb_scrub_packet"}},
	{"neighbours", []string{"neigh_", "ip_neigh", "ip_finish_output2", "arp_"}},
	{"IP, routing and forwarding", []string{"ip_", "__ip_", "fib_", "__fib_", "rt_", "inet_rt", "ipv4_", "ip6_", "raw_", "icmp_", "dst_", "__mkroute", "find_exception", "xfrm", "nf_"}},
	{"sockets and system calls", []string{"udp_", "__udp", "udp4_", "__udp4", "sock_", "__sock", "inet_", "__inet", "inet6_", "sys_", "__sys_", "__x64_sys", "do_syscall", "entry_SYSCALL", "x64_sys", "tcp_", "__tcp", "syscall_", "move_addr", "skb_recv", "__skb_recv", "__skb_try", "datagram", "copy_msghdr", "security_", "fdget", "sockfd", "user"}},
}

const otherPart = "everything else"

// partOf returns the part that a stack's innermost function with a part is of.
func partOf(stack string) string {
	for name := range strings.SplitSeq(stack, ";") {
		for _, p := range parts {
			for _, f := range p.functions {
				if strings.HasPrefix(name, f) || f[0] == '[' && strings.Contains(name, " "+f) {
					return p.name
				}
			}
		}
	}
	return otherPart
}

// share returns instructions per operation by what of says of a stack.
func (p Profile) share(of func(stack string) string) map[string]float64 {
	total := 0
	for _, n := range p.Stacks {
		total += n
	}
	out := map[string]float64{}
	for stack, n := range p.Stacks {
		out[of(stack)] += float64(n) / float64(total) * p.Row.Instructions
	}
	return out
}

// CompareProfiles returns two tables in Markdown of where the instructions of two
// variants' operation go: by the parts of the path, and the functions most of
// whose instructions one has and the other has not.
func CompareProfiles(base, ours Profile) string {
	return compareParts(base, ours) + "\n" + compareFunctions(base, ours)
}

func compareParts(base, ours Profile) string {
	var b strings.Builder
	a, c := base.share(partOf), ours.share(partOf)
	fmt.Fprintf(&b, "| part | %s | %s | more |\n|---|---:|---:|---:|\n", base.Row.Variant, ours.Row.Variant)
	for _, p := range append(slices.Clone(parts), part{name: otherPart}) {
		if a[p.name]+c[p.name] >= 1 {
			fmt.Fprintf(&b, "| %s | %.0f | %.0f | %+.0f |\n", p.name, a[p.name], c[p.name], c[p.name]-a[p.name])
		}
	}
	fmt.Fprintf(&b, "| **all** | **%.0f** | **%.0f** | **%+.0f** |\n", base.Row.Instructions, ours.Row.Instructions, ours.Row.Instructions-base.Row.Instructions)
	return b.String()
}

func compareFunctions(base, ours Profile) string {
	const most = 30
	a, c := base.share(innermost), ours.share(innermost)
	names := slices.Collect(maps.Keys(c))
	for name := range a {
		if _, both := c[name]; !both {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(abs(c[y]-a[y]), abs(c[x]-a[x])), strings.Compare(x, y))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| function, itself | %s | %s | more |\n|---|---:|---:|---:|\n", base.Row.Variant, ours.Row.Variant)
	for _, name := range names[:min(most, len(names))] {
		fmt.Fprintf(&b, "| `%s` | %.0f | %.0f | %+.0f |\n", name, a[name], c[name], c[name]-a[name])
	}
	return b.String()
}

func abs(x float64) float64 { return max(x, -x) }

func innermost(stack string) string {
	name, _, _ := strings.Cut(stack, ";")
	return name
}
