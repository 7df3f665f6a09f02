package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/shadow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

func newCollector(t *testing.T) *Collector {
	c := New(Source{
		PinDir: t.TempDir(), Ready: func() bool { return true }, Drained: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Stats: func() gateway.Stats {
			return gateway.Stats{
				Repairs: map[string]uint64{"flows": 3}, Listeners: 1,
				SNATPorts: 100, PortUse: []gateway.PortUse{
					{Proto: 6, Remote: netip.MustParseAddrPort("192.0.2.1:443"), Ports: 91}, {Proto: 6, Remote: netip.MustParseAddrPort("192.0.2.2:443"), Ports: 49},
				},
				Degraded:  map[string]string{"bind_gate": "", "host_to_service": "no cgroup2"},
				Unwritten: map[string]int{"services": 12},
				Held:      3,
				Shortcuts: &gateway.ShortcutStats{Causes: []string{"hw-offload"}, Limited: 2},
			}
		},
		Services: func() ([]bpf.ServiceCount, int, error) {
			return []bpf.ServiceCount{{ServicePort: bpf.ServicePort{Namespace: "default", Name: "web", Proto: 132, Port: 80}, Packets: 2, Bytes: 150}}, 5, nil
		},
		Pods: func() ([]podnet.Traffic, int, error) {
			return []podnet.Traffic{{
				Owner:    podnet.Owner{Namespace: "default", Pod: "web", Interface: "eth0"},
				Received: link.Traffic{Packets: 3, Bytes: 300, Dropped: 1}, Sent: link.Traffic{Packets: 4, Bytes: 400, Dropped: 2},
			}}, 6, nil
		},
		Shadow: func() shadow.Stats {
			return shadow.Stats{
				Compared: map[string]uint64{"default": 8, "service": 2}, Mismatched: map[string]uint64{"service": 1}, Skipped: map[string]uint64{"changed": 3},
			}
		},
		Datapath:   func() (ovs.DatapathStats, error) { return ovs.DatapathStats{Hit: 9, Missed: 2, Lost: 1, Flows: 4}, nil },
		Southbound: func() (bool, error) { return true, errors.New("it is gone") },
		Failures:   func() (map[string]uint64, error) { return map[string]uint64{"insert_failed": 7, "drop": 0}, nil },
		Info:       Info{Backend: "openflow", Layout: "bridged", Datapath: "netdev", Uplink: "eth0", NoEBPF: "kernel lacks maps"},
	})

	return c
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector(t))
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// With OpenFlow, the counters come from flows and not from pinned maps.
func TestCountersOfFlows(t *testing.T) {
	c := newCollector(t)
	c.s.Counters = func() ([]bpf.Counter, error) {
		return []bpf.Counter{{Port: "both", Direction: "rx", Verdict: "both", Reason: "icmp_error_both", Packets: 3, Bytes: 210}}, nil
	}

	const want = `
# HELP ovnkube_gateway_bytes_total Bytes at the North-South gateway, by receiver or sender, and reason.
# TYPE ovnkube_gateway_bytes_total counter
ovnkube_gateway_bytes_total{direction="rx",port="both",reason="icmp_error_both",verdict="both"} 210
# HELP ovnkube_gateway_packets_total Packets at the North-South gateway, by receiver or sender, and reason.
# TYPE ovnkube_gateway_packets_total counter
ovnkube_gateway_packets_total{direction="rx",port="both",reason="icmp_error_both",verdict="both"} 3
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "ovnkube_gateway_packets_total", "ovnkube_gateway_bytes_total"); err != nil {
		t.Error(err)
	}
}

func TestCountersOfPods(t *testing.T) {
	want := "# HELP ovnkube_node_uncounted_pods Interfaces of pods without counters, because the limit is reached (--counted-pods).\n# TYPE ovnkube_node_uncounted_pods gauge\novnkube_node_uncounted_pods 6\n"

	for _, f := range []struct {
		name, help string
		value      int
	}{
		{"receive_bytes", "Bytes that the pod received, including Ethernet headers.", 300},
		{"receive_packets_dropped", "Packets for the pod that its interface dropped.", 1},
		{"receive_packets", "Packets that the pod received.", 3},
		{"transmit_bytes", "Bytes that the pod sent, including Ethernet headers.", 400},
		{"transmit_packets_dropped", "Packets from the pod that its interface dropped.", 2},
		{"transmit_packets", "Packets that the pod sent.", 4},
	} {
		name := "ovnkube_node_pod_network_" + f.name + "_total"
		want += fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s counter\n%[1]s{interface=\"eth0\",namespace=\"default\",pod=\"web\"} %[3]d\n", name, f.help, f.value)
	}

	c := newCollector(t)
	for range 2 { // labels of existing pods are reused
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "ovnkube_node_uncounted_pods",
			podReceived+"_bytes_total", podReceived+"_packets_total", podReceived+"_packets_dropped_total",
			podSent+"_bytes_total", podSent+"_packets_total", podSent+"_packets_dropped_total"); err != nil {
			t.Error(err)
		}
	}

	c.s.Pods = nil
	if n := testutil.CollectAndCount(c, podReceived+"_bytes_total", "ovnkube_node_uncounted_pods"); n != 0 {
		t.Errorf("%d series of pods without a source", n)
	}
}

// The reasons why pods have no shortcuts are shown, each cause as a series.
func TestNoShortcuts(t *testing.T) {
	const want = `
# HELP ovnkube_gateway_shortcut_limited_pods Interfaces of pods that cannot have shortcuts because of a bandwidth limit.
# TYPE ovnkube_gateway_shortcut_limited_pods gauge
ovnkube_gateway_shortcut_limited_pods 2
# HELP ovnkube_gateway_shortcut_prevented 1 for each cause that currently prevents shortcuts on the node.
# TYPE ovnkube_gateway_shortcut_prevented gauge
ovnkube_gateway_shortcut_prevented{cause="hw-offload"} 1
`

	names := []string{"ovnkube_gateway_shortcut_limited_pods", "ovnkube_gateway_shortcut_prevented"}
	if err := testutil.CollectAndCompare(newCollector(t), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// Each compared reason has its mismatch counter, even at zero.
func TestComparedReasonHasMismatches(t *testing.T) {
	const want = `
# HELP ovnkube_gateway_shadow_compared_total Decisions that were compared with the model, by the reason that the programs gave (--gateway-shadow-rate).
# TYPE ovnkube_gateway_shadow_compared_total counter
ovnkube_gateway_shadow_compared_total{reason="default"} 8
ovnkube_gateway_shadow_compared_total{reason="service"} 2
# HELP ovnkube_gateway_shadow_mismatch_total Compared decisions for which the model has another result. A value other than 0 is a bug of ovn-ebpf.
# TYPE ovnkube_gateway_shadow_mismatch_total counter
ovnkube_gateway_shadow_mismatch_total{reason="default"} 0
ovnkube_gateway_shadow_mismatch_total{reason="service"} 1
# HELP ovnkube_gateway_shadow_skipped_total Decisions that could not be compared, by cause: changed (the tables changed meanwhile), cut (the headers may be longer than the sample), failed (a system call failed).
# TYPE ovnkube_gateway_shadow_skipped_total counter
ovnkube_gateway_shadow_skipped_total{cause="changed"} 3
`

	names := []string{"ovnkube_gateway_shadow_compared_total", "ovnkube_gateway_shadow_mismatch_total", "ovnkube_gateway_shadow_skipped_total"}

	c := newCollector(t)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}

	c.s.Shadow = nil
	if n := testutil.CollectAndCount(c, names...); n != 0 {
		t.Errorf("%d series without a comparison", n)
	}
}

func TestCollect(t *testing.T) {
	want := `
# HELP ovnkube_agent_ready 1 if everything that the agent manages is in its desired state.
# TYPE ovnkube_agent_ready gauge
ovnkube_agent_ready 1
# HELP ovnkube_gateway_conntrack_failures_total Packets that the kernel's connection tracker dropped, by cause. Each drop can make a connection of a pod fail without an error.
# TYPE ovnkube_gateway_conntrack_failures_total counter
ovnkube_gateway_conntrack_failures_total{kind="drop"} 0
ovnkube_gateway_conntrack_failures_total{kind="insert_failed"} 7
# HELP ovnkube_gateway_drained 1 if the gateway is drained (ovnkube node drain-gateway).
# TYPE ovnkube_gateway_drained gauge
ovnkube_gateway_drained 1
# HELP ovnkube_gateway_degraded 1 if an optional part of the gateway does not work.
# TYPE ovnkube_gateway_degraded gauge
ovnkube_gateway_degraded{part="bind_gate"} 0
ovnkube_gateway_degraded{part="host_to_service"} 1
# HELP ovnkube_gateway_fallback 1 if the gateway runs without eBPF because the kernel does not support it, with the reason.
# TYPE ovnkube_gateway_fallback gauge
ovnkube_gateway_fallback{backend="openflow",reason="kernel lacks maps"} 1
# HELP ovnkube_gateway_host_listeners Listening sockets of the host on ports of the SNAT range.
# TYPE ovnkube_gateway_host_listeners gauge
ovnkube_gateway_host_listeners 1
# HELP ovnkube_gateway_info Always 1. The labels describe the gateway.
# TYPE ovnkube_gateway_info gauge
ovnkube_gateway_info{backend="openflow",datapath="netdev",layout="bridged",uplink="eth0"} 1
# HELP ovnkube_gateway_service_bytes_total Bytes that arrived at the uplink for a port of a Service.
# TYPE ovnkube_gateway_service_bytes_total counter
ovnkube_gateway_service_bytes_total{namespace="default",port="80",protocol="SCTP",service="web"} 150
# HELP ovnkube_gateway_service_packets_total Packets that arrived at the uplink for a port of a Service.
# TYPE ovnkube_gateway_service_packets_total counter
ovnkube_gateway_service_packets_total{namespace="default",port="80",protocol="SCTP",service="web"} 2
# HELP ovnkube_gateway_services_to_write Services and pods with host ports whose changes are written later, because their namespaces have changed many entries (docs/services.md#pace).
# TYPE ovnkube_gateway_services_to_write gauge
ovnkube_gateway_services_to_write 3
# HELP ovnkube_gateway_table_unwritten Entries that do not fit into the gateway's tables. Their frontends or addresses are not served on the node.
# TYPE ovnkube_gateway_table_unwritten gauge
ovnkube_gateway_table_unwritten{table="services"} 12
# HELP ovnkube_gateway_uncounted_service_ports Ports of Services without counters, because the limit is reached (--counted-service-ports).
# TYPE ovnkube_gateway_uncounted_service_ports gauge
ovnkube_gateway_uncounted_service_ports 5
# HELP ovn_controller_southbound_database_connected 1 if the node's ovn-controller is connected to the Southbound database.
# TYPE ovn_controller_southbound_database_connected gauge
ovn_controller_southbound_database_connected 0
# HELP ovs_vswitchd_datapath_lookups_total Lookups of packets in the OVS datapath by result: hit, missed (sent to ovs-vswitchd), lost (dropped on the way to ovs-vswitchd).
# TYPE ovs_vswitchd_datapath_lookups_total counter
ovs_vswitchd_datapath_lookups_total{result="hit"} 9
ovs_vswitchd_datapath_lookups_total{result="lost"} 1
ovs_vswitchd_datapath_lookups_total{result="missed"} 2
# HELP ovnkube_gateway_repairs_total Repairs of the gateway after it had been in its desired state, by part.
# TYPE ovnkube_gateway_repairs_total counter
ovnkube_gateway_repairs_total{part="flows"} 3
# HELP ovnkube_gateway_snat_remote_ports_used Ports of the SNAT range that connections to a remote use. Only the ten fullest remotes are shown, if they use at least half of the ports.
# TYPE ovnkube_gateway_snat_remote_ports_used gauge
ovnkube_gateway_snat_remote_ports_used{protocol="TCP",remote="192.0.2.1:443"} 91
# HELP ovnkube_gateway_snat_remote_ports_used_max Ports of the SNAT range that connections to the fullest remote use.
# TYPE ovnkube_gateway_snat_remote_ports_used_max gauge
ovnkube_gateway_snat_remote_ports_used_max 91
`

	c := newCollector(t)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "ovnkube_agent_ready", "ovnkube_gateway_host_listeners",
		"ovnkube_gateway_info", "ovnkube_gateway_repairs_total", "ovnkube_gateway_fallback", "ovnkube_gateway_degraded", "ovnkube_gateway_drained", "ovnkube_gateway_snat_remote_ports_used",
		"ovnkube_gateway_service_bytes_total", "ovnkube_gateway_service_packets_total", "ovnkube_gateway_services_to_write", "ovnkube_gateway_uncounted_service_ports",
		"ovn_controller_southbound_database_connected", "ovs_vswitchd_datapath_lookups_total", "ovnkube_gateway_snat_remote_ports_used_max", "ovnkube_gateway_conntrack_failures_total"); err != nil {
		t.Error(err)
	}
}
