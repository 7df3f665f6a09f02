package metrics

import (
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Table lists the agent's metrics.
func Table() metric.Table {
	by := []string{"port", "direction", "verdict", "reason"}
	service := []string{"namespace", "service", "port", "protocol"}
	pod := []string{"namespace", "pod", "interface"}

	return append(metric.Table{
		metric.BuildInfo,
		{
			Name: "ovnkube_agent_ready",
			Kind: metric.Gauge,
			Help: "1 if the agent has everything in its desired state.",
		},
		{
			Name:   "ovnkube_gateway_info",
			Kind:   metric.Gauge,
			Labels: []string{"backend", "layout", "datapath", "uplink"},
			Help:   "1, with the gateway's kind.",
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
			Help: "Ports of Services that are not counted because there are more than --counted-service-ports.",
		},
		{
			Name:   "ovnkube_gateway_table_entries",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Entries of the gateway's tables.",
		},
		{
			Name:   "ovnkube_gateway_table_capacity",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Entries that the gateway's tables have room for.",
		},
		{
			Name:   "ovnkube_gateway_table_unwritten",
			Kind:   metric.Gauge,
			Labels: []string{"table"},
			Help:   "Entries for which the gateway's tables have no room: these front ends or addresses are not served on the node.",
		},
		{
			Name: "ovnkube_gateway_shortcut_created_total",
			Kind: metric.Counter,
			Help: "Shortcuts created, two per connection (--gateway-shortcuts).",
		},
		{
			Name: "ovnkube_gateway_shortcut_renewals_total",
			Kind: metric.Counter,
			Help: "Leases of connections that OVS has confirmed by a packet of each direction.",
		},
		{
			Name: "ovnkube_gateway_shortcut_evictions_total",
			Kind: metric.Counter,
			Help: "Shortcuts that made room for others since the agent's start, approximately: those connections pass OVS.",
		},
		{
			Name: "ovnkube_gateway_shortcut_unseen_total",
			Kind: metric.Counter,
			Help: "Packets of pods that were too many inside OVS to be observed.",
		},
		{
			Name: "ovnkube_gateway_shortcut_mismatch_total",
			Kind: metric.Counter,
			Help: "Shortcuts in use that OVS contradicted when their connection passed it again, without a change that the agent knows of.",
		},
		{
			Name: "ovnkube_gateway_shortcut_epochs_total",
			Kind: metric.Counter,
			Help: "Changes of flows or configuration after which every connection passes OVS once.",
		},
		{
			Name: "ovnkube_gateway_shortcut_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods that may have shortcuts.",
		},
		{
			Name: "ovnkube_gateway_shortcut_limited_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods that may not have shortcuts because of a bandwidth limit.",
		},
		{
			Name:   "ovnkube_gateway_shortcut_prevented",
			Kind:   metric.Gauge,
			Labels: []string{"cause"},
			Help:   "1 for each cause why no pod of the node may have shortcuts at present.",
		},
		{
			Name:   "ovnkube_gateway_program_runs_total",
			Kind:   metric.Counter,
			Labels: []string{"program"},
			Help:   "Runs of the gateway's programs, while the kernel counts them (kernel.bpf_stats_enabled).",
		},
		{
			Name:   "ovnkube_gateway_program_run_seconds_total",
			Kind:   metric.Counter,
			Labels: []string{"program"},
			Help:   "Time in the gateway's programs, while the kernel counts it (kernel.bpf_stats_enabled).",
		},
		{
			Name:   "ovnkube_gateway_shadow_compared_total",
			Kind:   metric.Counter,
			Labels: []string{"reason"},
			Help:   "Decisions compared with the model, by the reason that the programs gave (--gateway-shadow-rate).",
		},
		{
			Name:   "ovnkube_gateway_shadow_mismatch_total",
			Kind:   metric.Counter,
			Labels: []string{"reason"},
			Help:   "Those of the compared decisions that the model decides otherwise. Anything but 0 is a fault of ours.",
		},
		{
			Name:   "ovnkube_gateway_shadow_skipped_total",
			Kind:   metric.Counter,
			Labels: []string{"cause"},
			Help:   "Decisions that could not be compared: the tables have changed meanwhile, headers are longer than the sample (cut), or reading failed.",
		},
		{
			Name:   "ovnkube_gateway_repairs_total",
			Kind:   metric.Counter,
			Labels: []string{"part"},
			Help:   "Corrections of the gateway after it had been right.",
		},
		{
			Name:   "ovnkube_gateway_fallback",
			Kind:   metric.Gauge,
			Labels: []string{"backend", "reason"},
			Help:   "1 if the gateway has to do without eBPF, with the reason.",
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
			Help: "1 while an operator spares the gateway (ovnkube node drain-gateway).",
		},
		{
			Name: "ovnkube_gateway_host_listeners",
			Kind: metric.Gauge,
			Help: "Sockets of the host that listen inside the SNAT port range.",
		},
		{
			Name: "ovnkube_gateway_snat_ports",
			Kind: metric.Gauge,
			Help: "Ports of the SNAT range: so many connections fit towards one remote port.",
		},
		{
			Name:   "ovnkube_gateway_snat_remote_ports_used",
			Kind:   metric.Gauge,
			Labels: []string{"protocol", "remote"},
			Help:   "Ports of the SNAT range in use towards a remote, of the ten fullest at least half used.",
		},
		{
			Name: "ovnkube_gateway_snat_remote_ports_used_max",
			Kind: metric.Gauge,
			Help: "Ports of the SNAT range in use towards the remote where they are most.",
		},
		{
			Name:   "ovnkube_gateway_conntrack_failures_total",
			Kind:   metric.Counter,
			Labels: []string{"kind"},
			Help:   "Packets that the kernel's connection tracker dropped, by cause: connections of pods fail without an error.",
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
			Help:   "Packets that the OVS datapath looked up: hit; missed, so ovs-vswitchd was asked; lost on the way there.",
		},
		{Name: "ovs_vswitchd_datapath_flows", Kind: metric.Gauge, Help: "Flows in the OVS datapath."},
		{
			Name:   podReceived + "_packets_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets that a pod has received.",
		},
		{
			Name:   podReceived + "_bytes_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Bytes that a pod has received, with the Ethernet header.",
		},
		{
			Name:   podReceived + "_packets_dropped_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets for a pod that its interface has dropped.",
		},
		{
			Name:   podSent + "_packets_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets that a pod has sent.",
		},
		{
			Name:   podSent + "_bytes_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Bytes that a pod has sent, with the Ethernet header.",
		},
		{
			Name:   podSent + "_packets_dropped_total",
			Kind:   metric.Counter,
			Labels: pod,
			Help:   "Packets from a pod that its interface has dropped.",
		},
		{
			Name: "ovnkube_node_uncounted_pods",
			Kind: metric.Gauge,
			Help: "Interfaces of pods that are not counted because there are more than --counted-pods.",
		},
	}, cniserver.Table()...)
}
