// Package metrics shows the agent's state to Prometheus. Everything but the
// duration of CNI requests is read at the scrape.
package metrics

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Info is what does not change while the agent runs.
type Info struct {
	Backend, Layout, Datapath, Uplink string
	NoEBPF                            string // why the kernel cannot do eBPF, "" if it can
}

// Source is where a Collector reads.
type Source struct {
	PinDir string
	Stats  func() gateway.Stats
	Ready  func() bool
	// Failures are packets that the connection tracker has lost, by why; nil where
	// nobody counts them, as on the userspace datapath.
	Failures func() (map[string]uint64, error)
	Info     Info
	Log      *slog.Logger
}

// Collector implements prometheus.Collector.
type Collector struct {
	s                                Source
	packets, bytes, entries, repairs *prometheus.Desc
	listeners, ready, info           *prometheus.Desc
	fallback, degraded               *prometheus.Desc
	snatPorts, portUse, portUseMax   *prometheus.Desc
	failures                         *prometheus.Desc
	requests, phases                 *prometheus.HistogramVec
}

// New returns a Collector that is not registered.
func New(s Source) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ovnkube_"+name, help, labels, nil)
	}
	return &Collector{
		s:          s,
		packets:    desc("gateway_packets_total", "Packets at the North-South gateway, by who got or sent them and why.", "port", "direction", "verdict", "reason"),
		bytes:      desc("gateway_bytes_total", "Bytes at the North-South gateway, by who got or sent them and why.", "port", "direction", "verdict", "reason"),
		entries:    desc("gateway_table_entries", "Entries of the gateway's tables.", "table"),
		repairs:    desc("gateway_repairs_total", "Corrections of the gateway after it had been right.", "part"),
		listeners:  desc("gateway_host_listeners", "Sockets of the host that listen inside the SNAT port range."),
		ready:      desc("agent_ready", "1 if the agent has everything in its desired state."),
		fallback:   desc("gateway_fallback", "1 if the gateway has to do without eBPF, with the reason.", "backend", "reason"),
		degraded:   desc("gateway_degraded", "1 if an optional part of the gateway does not work.", "part"),
		snatPorts:  desc("gateway_snat_ports", "Ports of the SNAT range: so many connections fit towards one remote port."),
		portUse:    desc("gateway_snat_remote_ports_used", "Ports of the SNAT range in use towards a remote, of the ten fullest at least half used.", "protocol", "remote"),
		portUseMax: desc("gateway_snat_remote_ports_used_max", "Ports of the SNAT range in use towards the remote where they are most."),
		failures:   desc("gateway_conntrack_failures_total", "Packets that the kernel's connection tracker has lost, by why: connections of pods fail without being told.", "kind"),
		info:       desc("gateway_info", "1, with the gateway's kind.", "backend", "layout", "datapath", "uplink"),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ovnkube_node_cni_request_duration_seconds", Help: "The duration of CNI server requests.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"command", "err"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ovnkube_node_cni_add_phase_duration_seconds", Help: "The duration of what a CNI ADD is made of: the wait for the pod's annotation, the wiring, the wait for ovn-controller, and the whole of one that succeeded.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 17),
		}, []string{"phase"}),
	}
}

// ObserveCNI records a request. Commands that CNI does not know are one.
func (c *Collector) ObserveCNI(command string, failed bool, took time.Duration) {
	switch command {
	case "ADD", "DEL", "CHECK", "GC", "STATUS":
	default:
		command = "other"
	}
	label := "false"
	if failed {
		label = "true"
	}
	c.requests.WithLabelValues(command, label).Observe(took.Seconds())
}

// ObserveCNIPhase records how long a part of an ADD has taken.
func (c *Collector) ObserveCNIPhase(phase string, took time.Duration) {
	c.phases.WithLabelValues(phase).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.packets, c.bytes, c.entries, c.repairs, c.listeners, c.ready, c.info, c.fallback, c.degraded, c.snatPorts, c.portUse, c.portUseMax, c.failures} {
		ch <- d
	}
	c.requests.Describe(ch)
	c.phases.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.requests.Collect(ch)
	c.phases.Collect(ch)
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, c.s.Info.Backend, c.s.Info.Layout, c.s.Info.Datapath, c.s.Info.Uplink)
	ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, oneIf(c.s.Ready()))
	ch <- prometheus.MustNewConstMetric(c.fallback, prometheus.GaugeValue, oneIf(c.s.Info.NoEBPF != ""), c.s.Info.Backend, c.s.Info.NoEBPF)
	stats := c.s.Stats()
	for part, why := range stats.Degraded {
		ch <- prometheus.MustNewConstMetric(c.degraded, prometheus.GaugeValue, oneIf(why != ""), part)
	}
	ch <- prometheus.MustNewConstMetric(c.listeners, prometheus.GaugeValue, float64(stats.Listeners))
	c.collectPortUse(ch, stats)
	c.collectFailures(ch)
	for part, n := range stats.Repairs {
		ch <- prometheus.MustNewConstMetric(c.repairs, prometheus.CounterValue, float64(n), part)
	}
	c.collectPrograms(ch)
}

func (c *Collector) collectPortUse(ch chan<- prometheus.Metric, stats gateway.Stats) {
	if stats.SNATPorts == 0 {
		return
	}
	ch <- prometheus.MustNewConstMetric(c.snatPorts, prometheus.GaugeValue, float64(stats.SNATPorts))
	most := 0
	for _, u := range stats.PortUse {
		most = max(most, u.Ports)
		if 2*u.Ports >= stats.SNATPorts {
			ch <- prometheus.MustNewConstMetric(c.portUse, prometheus.GaugeValue, float64(u.Ports), strconv.Itoa(int(u.Proto)), u.Remote.String())
		}
	}
	ch <- prometheus.MustNewConstMetric(c.portUseMax, prometheus.GaugeValue, float64(most))
}

func (c *Collector) collectFailures(ch chan<- prometheus.Metric) {
	if c.s.Failures == nil {
		return
	}
	failures, err := c.s.Failures()
	if err != nil {
		c.s.Log.Debug("no counters of conntrack", "error", err)
		return
	}
	for kind, n := range failures {
		ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(n), kind)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collectPrograms reads the pinned maps. There are none before the first
// load: then there are no such metrics.
func (c *Collector) collectPrograms(ch chan<- prometheus.Metric) {
	counters, err := bpf.ReadCounters(c.s.PinDir)
	if err != nil {
		c.s.Log.Debug("no gateway counters", "error", err)
		return
	}
	for _, n := range counters {
		ch <- prometheus.MustNewConstMetric(c.packets, prometheus.CounterValue, float64(n.Packets), n.Port, n.Direction, n.Verdict, n.Reason)
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(n.Bytes), n.Port, n.Direction, n.Verdict, n.Reason)
	}
	sizes, err := bpf.TableSizes(c.s.PinDir)
	if err != nil {
		c.s.Log.Debug("no gateway table sizes", "error", err)
		return
	}
	for table, n := range sizes {
		ch <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(n), table)
	}
}
