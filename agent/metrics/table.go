package metrics

import (
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Table lists the agent's metrics: those of a Collector, and at its end those of package cniserver.
// docs/metrics.md is generated from it.
func Table() metric.Table {
	by := []string{"port", "direction", "verdict", "reason"}
	service := []string{"namespace", "service", "port", "protocol"}
	pod := []string{"namespace", "pod", "interface"}

	return append(metric.Table{
		metric.BuildInfo,
		{
			Name: "ovnkube_agent_ready",
			Kind: metric.Gauge,
			Help: "1 if everything that the agent manages is in its desired state.",
		},
		{
			Name:   "ovnkube_gateway_info",
			Kind:   metric.Gauge,
			Labels: []string{"backend", "layout", "datapath", "uplink"},
			Help:   "Always 1. The labels describe the gateway.",
		},
		{
			Name:   "ovnkube_gateway_packets_total",
			Kind:   metric.Counter,
			Labels: by,
			Help:   "Packets at the North-South gateway, by receiver or sender, and reason.",
		},
		{
			Name:   "ovnkube_gateway_bytes_total",
			Kind:   metric.Counter,
			Labels: by,
			Help:   "Bytes at the North-South gateway, by receiver or sender, and reason.",
		},
		{
			Name:   "ovnkube_gateway_service_packets_total",
			Kind:   metric.Counter,
			Labels: service,
			Help:   "Packets that arrived at the uplink for a port of a Service.",
		},
		{
			Name:   "ovnkube_gateway_service_bytes_total",
			Kind:   metric.Counter,
			Labels: service,
			Help:   "Bytes that arrived at the uplink for a port of a Service.",
		},
		{
			Name: "ovnkube_gateway_uncounted_service_ports",
			Kind: metric.Gauge,
			Help: "Ports of Services without counters, because the limit is reached (--counted-service-ports).",
		},
		{
			Name:   "ovnkube_gateway_table_entries",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Entries in the gateway's tables.",
		},
		{
			Name:   "ovnkube_gateway_table_capacity",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Maximum number of entries in the gateway's tables.",
		},
		{
			Name:   "ovnkube_gateway_table_unwritten",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Entries that do not fit into the gateway's tables. Their frontends or addresses are not served on the node.",
		},
		{
			Name: "ovnkube_gateway_services_to_write",
			Kind: metric.Gauge,
			Help: "Services and pods with host ports whose changes are written later, because their namespaces have changed many entries (docs/services.md#pace).",
		},
		{
			Name: "ovnkube_gateway_shortcut_created_total",
			Kind: metric.Counter,
			Help: "Shortcuts created, two per connection (--gateway-shortcuts).",
		},
		{
			Name: "ovnkube_gateway_shortcut_renewals_total",
			Kind: metric.Counter,
			Help: "Leases of connections that were renewed after OVS had passed a packet of each direction.",
		},
		{
			Name: "ovnkube_gateway_shortcut_evictions_total",
			Kind: metric.Counter,
			Help: "Approximate number of shortcuts evicted from the full table since the agent's start. Their connections pass OVS.",
		},
		{
			Name: "ovnkube_gateway_shortcut_unseen_total",
			Kind: metric.Counter,
			Help: "Packets of pods that were not observed in OVS, because too many others were observed at the time.",
		},
		{
			Name: "ovnkube_gateway_shortcut_mismatch_total",
			Kind: metric.Counter,
			Help: "Shortcuts in use that differed from what OVS did when their connection passed it again, without a change that explains it.",
		},
		{
			Name: "ovnkube_gateway_shortcut_epochs_total",
			Kind: metric.Counter,
			Help: "Changes of flows or configuration after which every connection passes OVS once.",
		},
		{
			Name: "ovnkube_gateway_shortcut_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods that can have shortcuts.",
		},
		{
			Name: "ovnkube_gateway_shortcut_limited_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods that cannot have shortcuts because of a bandwidth limit.",
		},
		{
			Name:   "ovnkube_gateway_shortcut_prevented",
			Kind:   metric.Gauge,
			Labels: []string{"cause"},
			Help:   "1 for each cause that currently prevents shortcuts on the node.",
		},
		{
			Name:   "ovnkube_gateway_program_runs_total",
			Kind:   metric.Counter,
			Labels: []string{"program"},
			Help:   "Runs of the gateway's programs. The kernel counts them only if kernel.bpf_stats_enabled is set.",
		},
		{
			Name:   "ovnkube_gateway_program_run_seconds_total",
			Kind:   metric.Counter,
			Labels: []string{"program"},
			Help:   "Run time of the gateway's programs. The kernel measures it only if kernel.bpf_stats_enabled is set.",
		},
		{
			Name:   "ovnkube_gateway_shadow_compared_total",
			Kind:   metric.Counter,
			Labels: []string{"reason"},
			Help:   "Decisions that were compared with the model, by the reason that the programs gave (--gateway-shadow-rate).",
		},
		{
			Name:   "ovnkube_gateway_shadow_mismatch_total",
			Kind:   metric.Counter,
			Labels: []string{"reason"},
			Help:   "Compared decisions for which the model has another result. A value other than 0 is a bug of ovn-ebpf.",
		},
		{
			Name:   "ovnkube_gateway_shadow_skipped_total",
			Kind:   metric.Counter,
			Labels: []string{"cause"},
			Help:   "Decisions that could not be compared, by cause: changed (the tables changed meanwhile), cut (the headers may be longer than the sample), failed (a system call failed).",
		},
		{
			Name:   "ovnkube_gateway_repairs_total",
			Kind:   metric.Counter,
			Labels: []string{"part"},
			Help:   "Repairs of the gateway after it had been in its desired state, by part.",
		},
		{
			Name:   "ovnkube_gateway_fallback",
			Kind:   metric.Gauge,
			Labels: []string{"backend", "reason"},
			Help:   "1 if the gateway runs without eBPF because the kernel does not support it, with the reason.",
		},
		{
			Name:   "ovnkube_gateway_degraded",
			Kind:   metric.Gauge,
			Labels: []string{"part"},
			Help:   "1 if an optional part of the gateway does not work.",
		},
		{
			Name: "ovnkube_gateway_drained",
			Kind: metric.Gauge,
			Help: "1 if the gateway is drained (ovnkube node drain-gateway).",
		},
		{
			Name: "ovnkube_gateway_host_listeners",
			Kind: metric.Gauge,
			Help: "Listening sockets of the host on ports of the SNAT range.",
		},
		{
			Name: "ovnkube_gateway_snat_ports",
			Kind: metric.Gauge,
			Help: "Ports in the SNAT range, which is the maximum number of connections to one remote address and port.",
		},
		{
			Name:   "ovnkube_gateway_snat_remote_ports_used",
			Kind:   metric.Gauge,
			Labels: []string{"protocol", "remote"},
			Help:   "Ports of the SNAT range that connections to a remote use. Only the ten fullest remotes are shown, if they use at least half of the ports.",
		},
		{
			Name: "ovnkube_gateway_snat_remote_ports_used_max",
			Kind: metric.Gauge,
			Help: "Ports of the SNAT range that connections to the fullest remote use.",
		},
		{
			Name:   "ovnkube_gateway_conntrack_failures_total",
			Kind:   metric.Counter,
			Labels: []string{"kind"},
			Help:   "Packets that the kernel's connection tracker dropped, by cause. Each drop can make a connection of a pod fail without an error.",
		},
		{
			Name: "ovn_controller_southbound_database_connected",
			Kind: metric.Gauge,
			Help: "1 if the node's ovn-controller is connected to the Southbound database.",
		},
		{Name: "ovs_vswitchd_connected", Kind: metric.Gauge, Help: "1 if the node's ovs-vswitchd answers."},
		{
			Name:   "ovs_vswitchd_datapath_lookups_total",
			Kind:   metric.Counter,
			Labels: []string{"result"},
			Help:   "Lookups of packets in the OVS datapath by result: hit, missed (sent to ovs-vswitchd), lost (dropped on the way to ovs-vswitchd).",
		},
		{Name: "ovs_vswitchd_datapath_flows", Kind: metric.Gauge, Help: "Flows in the OVS datapath."},
		{
			Name:   podReceived + "_packets_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets that the pod received.",
		},
		{
			Name:   podReceived + "_bytes_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Bytes that the pod received, including Ethernet headers.",
		},
		{
			Name:   podReceived + "_packets_dropped_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets for the pod that its interface dropped.",
		},
		{
			Name:   podSent + "_packets_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets that the pod sent.",
		},
		{
			Name:   podSent + "_bytes_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Bytes that the pod sent, including Ethernet headers.",
		},
		{
			Name:   podSent + "_packets_dropped_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets from the pod that its interface dropped.",
		},
		{
			Name: "ovnkube_node_uncounted_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods without counters, because the limit is reached (--counted-pods).",
		},
	}, cniserver.Table()...)
}
