// Package metrics exports the agent's state to Prometheus. All values are read at the scrape.
//
// table.go lists the metrics with their help, and Collector.Collect sends their values. In underlay
// mode, package underlay has a collector of its own.
package metrics

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/shadow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

// Info describes the gateway. It does not change while the agent runs.
type Info struct {
	Backend, Layout, Datapath, Uplink string // values of labels
	NoEBPF                            string // why the kernel cannot run eBPF, or ""
}

// Source holds the inputs of a Collector. Its functions must be safe for concurrent use. Stats,
// Ready, Drained, Info and Log are required. Of other nil functions, the metrics are omitted.
type Source struct {
	PinDir string // of the programs, from whose pinned maps the Collector reads
	Stats  func() gateway.Stats
	// Counters returns the decisions of flows. Nil: programs decide, and their counters are in
	// PinDir.
	Counters func() ([]bpf.Counter, error)
	// Services returns the packets that arrived at the uplink by Service port, and the number of
	// ports without a count.
	Services func() (counts []bpf.ServiceCount, uncounted int, err error)
	// Pods returns the traffic of pods, and the number of interfaces without a count.
	Pods func() (traffic []podnet.Traffic, uncounted int, err error)
	// HostSent counts the host packets that no program counts; nil if programs count all.
	HostSent *HostSent
	Ready    func() bool
	// Shadow returns the result of comparing decisions with the model; nil if comparison is off.
	Shadow func() shadow.Stats
	// Drained reports whether an operator has drained the gateway.
	Drained func() bool
	// Failures returns the packets that conntrack has lost, by kind; nil on the userspace datapath,
	// which does not count them.
	Failures   func() (map[string]uint64, error)
	Datapath   func() (ovs.DatapathStats, error)
	Southbound func() (connected bool, err error) // of ovn-controller
	Info       Info
	Log        *slog.Logger
}

// Collector implements prometheus.Collector. A part of the state that cannot be read is omitted and
// logged at level debug, and the scrape succeeds with the other parts.
type Collector struct {
	s         Source
	set       metric.Set
	evictions evictions

	mu       sync.Mutex                        // guards the following fields
	services map[bpf.ServicePort]metric.Labels // of the last scrape, to reuse them
	pods     map[podnet.Owner]metric.Labels    // of the last scrape, to reuse them
}

// New returns an unregistered Collector. It has all metrics of the Table except the histograms.
func New(s Source) *Collector {
	var table metric.Table

	for _, m := range Table() {
		if m.Kind != metric.Histogram { // package cniserver observes those
			table = append(table, m)
		}
	}

	return &Collector{s: s, set: metric.NewSet(table)}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { c.set.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	put := func(name string, v float64, labels ...string) { c.set.Put(ch, name, v, labels...) }
	info := c.s.Info
	put("ovnkube_gateway_info", 1, info.Backend, info.Layout, info.Datapath, info.Uplink)
	put(metric.BuildInfo.Name, 1, version.Labels()...)
	put("ovnkube_agent_ready", metric.One(c.s.Ready()))
	put("ovnkube_gateway_drained", metric.One(c.s.Drained()))
	put("ovnkube_gateway_fallback", metric.One(info.NoEBPF != ""), info.Backend, info.NoEBPF)

	stats := c.s.Stats()
	for part, why := range stats.Degraded {
		put("ovnkube_gateway_degraded", metric.One(why != ""), part)
	}

	for table, n := range stats.Unwritten {
		put("ovnkube_gateway_table_unwritten", float64(n), table)
	}

	put("ovnkube_gateway_services_to_write", float64(stats.Held))

	for part, n := range stats.Repairs {
		put("ovnkube_gateway_repairs_total", float64(n), part)
	}

	put("ovnkube_gateway_host_listeners", float64(stats.Listeners))
	c.putPortUse(put, stats)

	if s := stats.Shortcuts; s != nil {
		put("ovnkube_gateway_shortcut_limited_pods", float64(s.Limited))

		for _, cause := range s.Causes {
			put("ovnkube_gateway_shortcut_prevented", 1, cause)
		}
	}

	c.putFailures(put)
	c.putOVS(put)
	c.putPrograms(put)
	c.putShadow(put)
	c.putServices(put, ch)
	c.putPods(put, ch)
}

// putter sends a value of a metric in the Table. The labels are values, in the order of the Table.
type putter func(name string, v float64, labels ...string)

// putPortUse sends how many ports of the SNAT range are in use: by remote if it uses at least half
// of them, and the maximum of all remotes.
func (c *Collector) putPortUse(put putter, stats gateway.Stats) {
	if stats.SNATPorts == 0 {
		return
	}

	put("ovnkube_gateway_snat_ports", float64(stats.SNATPorts))

	maxUsed := 0
	for _, u := range stats.PortUse {
		maxUsed = max(maxUsed, u.Ports)
		if 2*u.Ports >= stats.SNATPorts {
			put("ovnkube_gateway_snat_remote_ports_used", float64(u.Ports), service.ProtocolName(u.Proto),
				u.Remote.String())
		}
	}

	put("ovnkube_gateway_snat_remote_ports_used_max", float64(maxUsed))
}

// putFailures sends the packets that the kernel's connection tracker has lost.
func (c *Collector) putFailures(put putter) {
	if c.s.Failures == nil {
		return
	}

	failures, err := c.s.Failures()
	if err != nil {
		c.s.Log.Debug("no counters of conntrack", "error", err)
		return
	}

	for kind, n := range failures {
		put("ovnkube_gateway_conntrack_failures_total", float64(n), kind)
	}
}

// putShadow sends the comparisons. Each compared reason has a mismatch counter, even at zero.
func (c *Collector) putShadow(put putter) {
	if c.s.Shadow == nil {
		return
	}

	s := c.s.Shadow()
	for reason, n := range s.Compared {
		put("ovnkube_gateway_shadow_compared_total", float64(n), reason)
		put("ovnkube_gateway_shadow_mismatch_total", float64(s.Mismatched[reason]), reason)
	}

	for cause, n := range s.Skipped {
		put("ovnkube_gateway_shadow_skipped_total", float64(n), cause)
	}
}

// putOVS sends the state of OVN and OVS. A daemon that does not answer counts as not connected.
func (c *Collector) putOVS(put putter) {
	if c.s.Southbound != nil {
		connected, err := c.s.Southbound()
		put("ovn_controller_southbound_database_connected", metric.One(connected && err == nil))
	}

	if c.s.Datapath == nil {
		return
	}

	stats, err := c.s.Datapath()
	put("ovs_vswitchd_connected", metric.One(err == nil))

	if err != nil {
		c.s.Log.Debug("no counters of the datapath", "error", err)
		return
	}

	put("ovs_vswitchd_datapath_flows", float64(stats.Flows))
	put("ovs_vswitchd_datapath_lookups_total", float64(stats.Hit), "hit")
	put("ovs_vswitchd_datapath_lookups_total", float64(stats.Missed), "missed")
	put("ovs_vswitchd_datapath_lookups_total", float64(stats.Lost), "lost")
}
