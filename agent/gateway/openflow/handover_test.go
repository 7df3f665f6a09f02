package openflow

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestHandover(t *testing.T) {
	ap := netip.MustParseAddrPort
	list := []verdict.FlowKey{
		{Proto: protoTCP, Local: ap("172.30.0.11:50000"), Remote: ap("198.51.100.1:443")},
		{Proto: protoUDP, Local: ap("[fd00:172:30::11]:50001"), Remote: ap("[2001:db8::1]:53")},
		{Proto: 1, Local: ap("172.30.0.11:7"), Remote: ap("198.51.100.1:0")}, // ICMP has no ports
	}

	const first, then = "priority=65000,idle_timeout=3600,", ",actions=ct(commit,zone=64000,exec(load:1->NXM_NX_CT_MARK[])),output:2"

	want := []string{
		first + "tcp,in_port=1,nw_src=198.51.100.1,nw_dst=172.30.0.11,tp_src=443,tp_dst=50000" + then,
		first + "udp6,in_port=1,ipv6_src=2001:db8::1,ipv6_dst=fd00:172:30::11,tp_src=53,tp_dst=50001" + then,
	}
	if diff := cmp.Diff(want, Handover(Ports{Uplink: 1, Patch: 2}, list)); diff != "" {
		t.Error(diff)
	}

	if got := Handover(Ports{Uplink: 1}, list); got != nil {
		t.Errorf("without a port to OVN: %q", got)
	}
}
