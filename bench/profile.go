package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Profile is a row with the distribution of its instructions.
type Profile struct {
	Row Row `json:"row"`
	// Operations is the number of operations in Stacks: those of the row's batches.
	Operations int `json:"operations"`
	// Stacks counts instructions by call stack: function names, innermost first, separated by
	// semicolons; those of modules and programs end with " [module]".
	Stacks map[string]int `json:"stacks,omitempty"`
}

// Total returns the counted instructions per operation.
func (p Profile) Total() float64 {
	total := 0
	for _, n := range p.Stacks {
		total += n
	}

	return float64(total) / float64(p.Operations)
}

// Check returns an error if the counted instructions differ from the measured ones by more than 2
// %. It compares a mean with a median.
func (p Profile) Check() error {
	if total := p.Total(); !(abs(total-p.Row.Instructions) <= 0.02*p.Row.Instructions) {
		return fmt.Errorf("check profile of %s: the functions have %.0f instructions, the operation %.0f", p.Row.Key(), total, p.Row.Instructions)
	}

	return nil
}

// part is a part of the packet's path, defined by prefixes of function names, or "[module".
// Functions without a part (memory, locks, checksums) belong to the part that called them.
type part struct {
	name      string
	functions []string
}

// parts are in the order of display. The first match counts.
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

// partOf returns the part of a stack: that of its innermost function with a part.
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

// share returns the instructions per operation of each group of stacks.
func (p Profile) share(groupOf func(stack string) string) map[string]float64 {
	out := map[string]float64{}
	for stack, n := range p.Stacks {
		out[groupOf(stack)] += float64(n) / float64(p.Operations)
	}

	return out
}

// CompareProfiles returns two Markdown tables of the instructions per operation: by the parts of
// the path, and by the functions with the largest difference between the last and the first
// profile.
func CompareProfiles(profiles ...Profile) string {
	return compareParts(profiles) + "\n" + compareFunctions(profiles)
}

func compareParts(profiles []Profile) string {
	t := newComparison("part", profiles, partOf)
	for _, p := range append(slices.Clone(parts), part{name: otherPart}) {
		t.line(p.name, p.name)
	}

	var counted, measured []float64
	for _, p := range profiles {
		counted = append(counted, p.Total())
		measured = append(measured, p.Row.Instructions)
	}

	t.cells("**counted**", "**%.0f**", "**%+.0f**", counted)
	t.cells("measured, median", "%.0f", "%+.0f", measured)

	return t.String()
}

func compareFunctions(profiles []Profile) string {
	const maxLines = 40

	t := newComparison("function, itself", profiles, innermost)
	differences := map[string]float64{} // by function

	for _, s := range t.shares {
		for name := range s {
			differences[name] = abs(t.shares[len(t.shares)-1][name] - t.shares[0][name])
		}
	}

	sorted := slices.SortedFunc(maps.Keys(differences), func(x, y string) int {
		return cmp.Or(cmp.Compare(differences[y], differences[x]), strings.Compare(x, y))
	})
	for _, name := range sorted[:min(maxLines, len(sorted))] {
		t.line("`"+name+"`", name)
	}

	return t.String()
}

// comparison is a table with a column per profile, and one for the difference of the last to the
// first.
type comparison struct {
	strings.Builder
	shares []map[string]float64 // of each profile, by group
}

func newComparison(title string, profiles []Profile, groupOf func(stack string) string) *comparison {
	t := &comparison{}
	fmt.Fprintf(t, "| %s |", title)

	for _, p := range profiles {
		t.shares = append(t.shares, p.share(groupOf))
		fmt.Fprintf(t, " %s |", p.Row.Variant)
	}

	fmt.Fprintf(t, " more |\n|---|%s---:|\n", strings.Repeat("---:|", len(profiles)))

	return t
}

// line writes the values of a group, unless all are zero.
func (t *comparison) line(title, name string) {
	values := make([]float64, len(t.shares))
	for i, s := range t.shares {
		values[i] = s[name]
	}

	if slices.Max(values) < 0.5 { // printed as 0
		return
	}

	t.cells(title, "%.0f", "%+.0f", values)
}

// cells writes a line with a value of each profile, and the difference of the last to the first.
func (t *comparison) cells(title, format, differenceFormat string, values []float64) {
	fmt.Fprintf(t, "| %s |", title)

	for _, v := range values {
		fmt.Fprintf(t, " "+format+" |", v)
	}

	fmt.Fprintf(t, " "+differenceFormat+" |\n", values[len(values)-1]-values[0])
}

func abs(x float64) float64 { return max(x, -x) }

func innermost(stack string) string {
	name, _, _ := strings.Cut(stack, ";")
	return name
}
