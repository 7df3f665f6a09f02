package bench

import (
	"slices"
	"strings"
)

// Variants of a node's network: what connects its uplink, host and pods.
const (
	// Linux without OVS.
	NoOVS      = "no-ovs"     // the host owns the uplink; pods are routed, without NAT
	Masquerade = "masquerade" // pods are routed, and nftables masquerades them
	Flowtable  = "flowtable"  // Masquerade with nftables' flowtable: forwarded packets bypass the routing

	// ovn-kubernetes.
	Helper = "helper" // its first releases: the conntrack flows of ovn-k8s-gateway-helper, on the uplink's bridge
	OVNK   = "ovn-k"  // today: all flows of the default network in shared gateway mode

	// This project with --gateway-shortcuts=off.
	EBPF     = "ebpf"     // layout direct
	Bridged  = "bridged"  // layout bridged
	OpenFlow = "openflow" // layout bridged, with flows and without programs

	// This project by default: established connections of pods bypass OVS.
	Shortcuts        = "shortcuts"         // layout direct
	ShortcutsBridged = "shortcuts-bridged" // layout bridged
	NeverShort       = "never-short"       // Shortcuts with leases that end at once, so every packet passes OVS

	// The same gateways on real OVN.
	OVNKOnOVN      = OVNK + OnOVN
	EBPFOnOVN      = EBPF + OnOVN
	ShortcutsOnOVN = Shortcuts + OnOVN
)

// OnOVN ends the name of a variant on real OVN: northd, two chassis, 100 Services and a policy.
// Other variants with OVS have a few flows on br-int that do the same to the tests' packets.
const OnOVN = "+ovn"

// Planted stands for a variant in a row of Shortcuts that was measured with slower programs. The
// gate must detect it (Baseline.CheckPlanted).
const Planted = "planted"

// Variants returns the variants that CI measures, in the order of display. Those of this project
// have the settings that a user gets by default: shortcuts are on. NeverShort has them too, and is
// the cost of packets for which no shortcut is valid.
func Variants() []string {
	return []string{NoOVS, Flowtable, OVNKOnOVN, ShortcutsOnOVN, Shortcuts, ShortcutsBridged, NeverShort}
}

// AllVariants returns Variants and those that CI has no time for, in the order of display.
func AllVariants() []string {
	return []string{
		NoOVS, Helper, Masquerade, EBPF, Bridged, Flowtable, OVNKOnOVN, ShortcutsOnOVN,
		EBPFOnOVN, OpenFlow, Shortcuts, ShortcutsBridged, NeverShort, OVNK,
	}
}

// Ours returns the variants of this project that CI measures.
func Ours() []string { return []string{ShortcutsOnOVN, Shortcuts, ShortcutsBridged, NeverShort} }

// The tests. The first word of a name is the path of the packets:
//
//   - host_: between the node's host and a machine outside
//   - overlay_: between a pod and a pod of another node, over Geneve
//   - ns_ (North-South): from a pod to a machine outside, with SNAT to the node's address
//   - nodeport_: from a machine outside to a pod behind a port of the node
//   - endpoint_, service_: from the node's host to a machine outside
//
// The last word is the operation: an rr is a request and its reply on an open connection, a crr
// opens and closes a connection for them, a stream is a write of 60 KB.
const (
	HostUDPRR     = "host_udp_rr"
	HostTCPRR     = "host_tcp_rr"
	HostTCPCRR    = "host_tcp_crr"
	HostICMP      = "host_icmp"
	HostStreamIn  = "host_stream_in"
	HostStreamOut = "host_stream_out"
	OverlayUDPRR  = "overlay_udp_rr"
	OverlayTCPRR  = "overlay_tcp_rr"
	NSUDPRR       = "ns_udp_rr"
	NSTCPRR       = "ns_tcp_rr"
	NSTCPCRR      = "ns_tcp_crr"
	// The pod is on this node, or on another one behind Geneve. Its replies return through this node
	// in both cases.
	NodePortLocal  = "nodeport_local_tcp_crr"
	NodePortRemote = "nodeport_remote_tcp_crr"
	// The client connects to the machine's own address, or to the ClusterIP of a Service with this
	// endpoint.
	EndpointTCPCRR = "endpoint_tcp_crr"
	ServiceTCPCRR  = "service_tcp_crr"
)

// Tests returns all tests in the order of execution and display.
func Tests() []string {
	return []string{
		HostUDPRR, HostTCPRR, HostTCPCRR, HostICMP, HostStreamIn, HostStreamOut, OverlayUDPRR, OverlayTCPRR,
		NSUDPRR, NSTCPRR, NSTCPCRR, EndpointTCPCRR, NodePortLocal, NodePortRemote, ServiceTCPCRR,
	}
}

// ShortTests returns the tests of CI.
func ShortTests() []string {
	return []string{HostUDPRR, HostTCPRR, HostTCPCRR, HostICMP, OverlayUDPRR, NSUDPRR, NSTCPCRR, EndpointTCPCRR, ServiceTCPCRR}
}

// InShort reports whether CI measures a test in a family: only one test over IPv6.
func InShort(test, family string) bool {
	return slices.Contains(ShortTests(), test) && (family == IPv4 || test == HostUDPRR)
}

// IsShort reports whether CI measures the row.
func (r Row) IsShort() bool {
	return slices.Contains(Variants(), r.Variant) && InShort(r.Test, r.Family)
}

// Short returns the rows that CI measures.
func Short(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.IsShort() })
}

// The address families, as Row.Family has them.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// Row is the result of one test on one variant.
type Row struct {
	Test    string
	Variant string
	// Layout is how uplink, bridge and host are wired: "direct" or "bridged", or "none" without a
	// bridge.
	Layout string
	// Kernel is the guest's release, as uname(1) prints it.
	Kernel string
	Family string // IPv4 or IPv6
	// Instructions is the number of instructions per operation, the median of the batches.
	Instructions float64
	// Spread is the distance between the quartiles of the batches, as a fraction of the median.
	Spread float64
}

// Key identifies the row among those of one kernel.
func (r Row) Key() string { return r.Variant + " " + r.Test + " " + r.Family }

// Summarize returns the median of the samples and the distance between their quartiles as a
// fraction of it, or zeros without samples.
func Summarize(samples []float64) (median, spread float64) {
	if len(samples) == 0 {
		return 0, 0
	}

	s := slices.Sorted(slices.Values(samples))
	at := func(q float64) float64 { return s[int(q*float64(len(s)-1)+0.5)] }

	median = at(0.5)
	if median == 0 {
		return 0, 0
	}

	return median, (at(0.75) - at(0.25)) / median
}

// Merge combines the rows of several boots: the median of the medians, and the larger of the boots'
// typical spread and the distance between their extremes. The order is that of the first boot.
func Merge(boots ...[]Row) []Row {
	var out []Row

	same := map[Row][]Row{}

	for _, rows := range boots {
		for _, r := range rows {
			key := r

			key.Instructions, key.Spread = 0, 0
			if len(same[key]) == 0 {
				out = append(out, key)
			}

			same[key] = append(same[key], r)
		}
	}

	for i, key := range out {
		var medians, spreads []float64
		for _, r := range same[key] {
			medians, spreads = append(medians, r.Instructions), append(spreads, r.Spread)
		}

		median, _ := Summarize(medians)
		spread, _ := Summarize(spreads)

		out[i].Instructions = median
		if median > 0 {
			out[i].Spread = max(spread, (slices.Max(medians)-slices.Min(medians))/median)
		}
	}

	return out
}

// Samples returns the results of each boot by kernel and key, in the order of the boots, or nil for
// a single boot.
func Samples(boots ...[]Row) map[string][]float64 {
	if len(boots) < 2 {
		return nil
	}

	out := map[string][]float64{}

	for _, rows := range boots {
		for _, r := range rows {
			key := r.Kernel + " " + r.Key()
			out[key] = append(out[key], r.Instructions)
		}
	}

	return out
}

// Replace returns the rows with those of a later run in the place of the same rows. It does not
// choose the better row of both runs, because boots differ by the kernel's random hash keys: a
// ratio is fair only if both of its rows are from the same run.
func Replace(rows, later []Row) []Row {
	at := map[string]int{}

	out := slices.Clone(rows)
	for i, r := range out {
		at[r.Kernel+" "+r.Key()] = i
	}

	for _, r := range later {
		if i, ok := at[r.Kernel+" "+r.Key()]; ok {
			out[i] = r
		} else {
			out = append(out, r)
		}
	}

	return out
}

// OnKernel returns the rows of a kernel, selected by a prefix of its release.
func OnKernel(rows []Row, kernel string) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !strings.HasPrefix(r.Kernel, kernel) })
}
