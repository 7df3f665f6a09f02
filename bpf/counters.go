package bpf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Counter counts the packets of one reason since the state was first pinned.
type Counter struct {
	Port      string // receiver or sender: "host", "ovn", "both", "none"
	Direction string // "rx": from the wire at the uplink; "tx": from OVN, or from the host in layout bridged
	Verdict   string // "host", "ovn", "both", "out", "drop"
	Reason    string
	Packets   uint64 // a GSO packet counts as its segments
	Bytes     uint64 // of frames on the wire, without preamble, checksum and VLAN tags that the NIC has removed
}

// Classes of reasons by verdict.
var (
	toHost  = Counter{Port: "host", Direction: "rx", Verdict: "host"}
	toOVN   = Counter{Port: "ovn", Direction: "rx", Verdict: "ovn"}
	barred  = Counter{Port: "none", Direction: "rx", Verdict: "drop"}
	toBoth  = Counter{Port: "both", Direction: "rx", Verdict: "both"}
	outward = Counter{Port: "ovn", Direction: "tx", Verdict: "out"}
	dropped = Counter{Port: "none", Direction: "tx", Verdict: "drop"}
	upward  = Counter{Port: "ovn", Direction: "tx", Verdict: "host"}
	hostOut = Counter{Port: "host", Direction: "tx", Verdict: "out"}
	hostOVN = Counter{Port: "host", Direction: "tx", Verdict: "ovn"}
)

type reason struct {
	name  string
	class Counter
}

// reasons names enum reason of types.h.
var reasons = [gatewayReasonREASON_MAX]reason{
	gatewayReasonREASON_DEFAULT:             {"default", toHost},
	gatewayReasonREASON_GENEVE:              {"geneve", toHost},
	gatewayReasonREASON_ARP_VIP:             {"arp_vip", toHost},
	gatewayReasonREASON_ARP_REQUEST:         {"arp_request", toHost},
	gatewayReasonREASON_ARP_OTHER:           {"arp_other", toHost},
	gatewayReasonREASON_ND_VIP:              {"nd_vip", toHost},
	gatewayReasonREASON_ND_SOLICIT:          {"nd_solicit", toHost},
	gatewayReasonREASON_ND_OTHER:            {"nd_other", toHost},
	gatewayReasonREASON_OTHER_MAC:           {"other_mac", toHost},
	gatewayReasonREASON_MULTICAST:           {"multicast", toHost},
	gatewayReasonREASON_VLAN:                {"vlan", toHost},
	gatewayReasonREASON_NOT_IP:              {"not_ip", toHost},
	gatewayReasonREASON_MALFORMED:           {"malformed", toHost},
	gatewayReasonREASON_FRAGMENT:            {"fragment", toHost},
	gatewayReasonREASON_SERVICE_HOST:        {"service_host", toHost},
	gatewayReasonREASON_SERVICE_LOCAL:       {"service_local", toHost},
	gatewayReasonREASON_SNAT_SYN:            {"snat_syn", toHost},
	gatewayReasonREASON_HOST_SOCKET:         {"host_socket", toHost},
	gatewayReasonREASON_HOST_CONNECTION:     {"host_connection", toHost},
	gatewayReasonREASON_ICMP_ECHO:           {"icmp_echo", toHost},
	gatewayReasonREASON_ICMP_ECHO_REPLY:     {"icmp_echo_reply", toHost},
	gatewayReasonREASON_ICMP_ERROR_HOST:     {"icmp_error_host", toHost},
	gatewayReasonREASON_PROTO_HOST:          {"proto_host", toHost},
	gatewayReasonREASON_NOT_OURS:            {"not_ours", toHost},
	gatewayReasonREASON_PASS_UNCONFIGURED:   {"pass_unconfigured", toHost},
	gatewayReasonREASON_GENEVE_OVN:          {"geneve_ovn", toOVN},
	gatewayReasonREASON_SERVICE:             {"service", toOVN},
	gatewayReasonREASON_SNAT_PORT:           {"snat_port", toOVN},
	gatewayReasonREASON_TAKEOVER:            {"takeover", toOVN},
	gatewayReasonREASON_ICMP_ERROR_OVN:      {"icmp_error_ovn", toOVN},
	gatewayReasonREASON_ICMP_VIP:            {"icmp_vip", toOVN},
	gatewayReasonREASON_PROTO_NS:            {"proto_ns", toOVN},
	gatewayReasonREASON_FRAGMENT_OVN:        {"fragment_ovn", toOVN},
	gatewayReasonREASON_ARP_REQUEST_OVN:     {"arp_request_ovn", toOVN},
	gatewayReasonREASON_ND_SOLICIT_OVN:      {"nd_solicit_ovn", toOVN},
	gatewayReasonREASON_POD_ADDRESS:         {"pod_address", toOVN},
	gatewayReasonREASON_OVN_ADDRESS:         {"ovn_address", toOVN},
	gatewayReasonREASON_SNAT_CACHED:         {"snat_cached", toOVN},
	gatewayReasonREASON_SERVICE_CACHED:      {"service_cached", toOVN},
	gatewayReasonREASON_ARP_REPLY:           {"arp_reply", toBoth},
	gatewayReasonREASON_ARP_GRATUITOUS:      {"arp_gratuitous", toBoth},
	gatewayReasonREASON_ND_ADVERT:           {"nd_advert", toBoth},
	gatewayReasonREASON_ROUTER_ADVERT:       {"router_advert", toBoth},
	gatewayReasonREASON_FRAGMENT_EARLY:      {"fragment_early", toBoth},
	gatewayReasonREASON_ICMP_ECHO_REPLY_NS:  {"icmp_echo_reply_ns", toBoth},
	gatewayReasonREASON_ICMP_ERROR_ECHO:     {"icmp_error_echo", toBoth},
	gatewayReasonREASON_BFD:                 {"bfd", toBoth},
	gatewayReasonREASON_NESTED_TAG:          {"nested_tag", barred},
	gatewayReasonREASON_SPOOFED_SOURCE:      {"spoofed_source", barred},
	gatewayReasonREASON_CLUSTER_DESTINATION: {"cluster_destination", barred},
	gatewayReasonREASON_OUT:                 {"out", outward},
	gatewayReasonREASON_OUT_LEARNED:         {"out_learned", outward},
	gatewayReasonREASON_OUT_CACHED:          {"out_cached", outward},
	gatewayReasonREASON_NEIGHBOUR_OUT:       {"neighbour_out", outward},
	gatewayReasonREASON_ENCAP_OUT:           {"encap_out", outward},
	gatewayReasonREASON_BFD_OUT:             {"bfd_out", outward},
	gatewayReasonREASON_PMTUD:               {"pmtud", dropped},
	gatewayReasonREASON_BAD_MAC:             {"bad_mac", dropped},
	gatewayReasonREASON_GARP_GUARD:          {"garp_guard", dropped},
	gatewayReasonREASON_SVC_LEAK:            {"svc_leak", dropped},
	gatewayReasonREASON_UNSNATED:            {"unsnated", dropped},
	gatewayReasonREASON_HOST_OWNED:          {"host_owned", dropped},
	gatewayReasonREASON_POD_TUNNEL:          {"pod_tunnel", dropped},
	gatewayReasonREASON_NO_UPLINK:           {"no_uplink", dropped},
	gatewayReasonREASON_HAIRPIN:             {"hairpin", upward},
	gatewayReasonREASON_OVERSIZED:           {"oversized", upward},
	gatewayReasonREASON_LOCAL_OUT:           {"local_out", upward},
	gatewayReasonREASON_HOST_OUT:            {"host_out", hostOut},
	gatewayReasonREASON_HOST_OVN:            {"host_ovn", hostOVN},
}

// ReadCounters sums the counters pinned in pinDir over all CPUs. It returns every reason, including
// those at zero, sorted by direction, port and reason.
func ReadCounters(pinDir string) ([]Counter, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, "counters"), nil)
	if err != nil {
		return nil, fmt.Errorf("open gateway counters in %q: %w", pinDir, err)
	}
	defer m.Close()

	var cpus []gatewayCells
	if err := m.Lookup(uint32(0), &cpus); err != nil {
		return nil, fmt.Errorf("read gateway counters in %q: %w", pinDir, err)
	}

	counters := make([]Counter, len(reasons))
	for i, r := range reasons {
		c := r.class
		c.Reason = r.name

		for _, cpu := range cpus {
			c.Packets += cpu.Reason[i].Packets
			c.Bytes += cpu.Reason[i].Bytes
		}

		counters[i] = c
	}

	slices.SortFunc(counters, byLabels)

	return counters, nil
}

// Reasons returns all counters, without counts, in the order of ReadCounters.
func Reasons() []Counter {
	counters := make([]Counter, len(reasons))
	for i, r := range reasons {
		counters[i] = r.class
		counters[i].Reason = r.name
	}

	slices.SortFunc(counters, byLabels)

	return counters
}

func byLabels(a, b Counter) int {
	return strings.Compare(a.Direction+a.Port+a.Reason, b.Direction+b.Port+b.Reason)
}
