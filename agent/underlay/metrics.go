package underlay

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

// table lists the metrics of newCollector.
func table() metric.Table {
	by := []string{"direction", "reason"}

	return metric.Table{
		metric.BuildInfo,
		{
			Name: "ovnkube_agent_ready",
			Kind: metric.Gauge,
			Help: "1 if everything that the agent manages is in its desired state.",
		},
		{
			Name:   "ovnkube_underlay_ports",
			Kind:   metric.Gauge,
			Labels: []string{"state"},
			Help:   "Ports of the node's pool, by state. A missing port is used by a pod, but is no longer in the pool.",
		},
		{
			Name:   "ovnkube_underlay_claims_total",
			Kind:   metric.Counter,
			Labels: []string{"result"},
			Help:   "Attempts to allocate a port to a pod, by result.",
		},
		{
			Name: "ovnkube_underlay_reused_early_total",
			Kind: metric.Counter,
			Help: "Ports that were allocated to a pod before the end of their rest (--underlay-rest), because no other port was free.",
		},
		{
			Name:   "ovnkube_underlay_packets_total",
			Kind:   metric.Counter,
			Labels: by,
			Help:   "Packets of nested pods, by direction (rx: from the NIC with a VLAN tag, tx: from a pod) and reason.",
		},
		{
			Name:   "ovnkube_underlay_bytes_total",
			Kind:   metric.Counter,
			Labels: by,
			Help:   "Bytes of nested pods, by direction and reason.",
		},
	}
}

// Table lists the agent's metrics in underlay mode.
func Table() metric.Table { return append(table(), cniserver.Table()...) }

// collector reads the agent's state at the scrape. It implements prometheus.Collector.
type collector struct {
	agent *agent
	set   metric.Set
	log   *slog.Logger
}

// newCollector returns an unregistered collector.
func newCollector(a *agent) *collector { return &collector{a, metric.NewSet(table()), a.log} }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { c.set.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	put := func(name string, v float64, labels ...string) { c.set.Put(ch, name, v, labels...) }
	put(metric.BuildInfo.Name, 1, version.Labels()...)
	put("ovnkube_agent_ready", metric.One(len(c.agent.ready.Missing()) == 0))

	s := c.agent.ports.stats(time.Now())
	for state, n := range s.states {
		put("ovnkube_underlay_ports", float64(n), string(state))
	}

	for result, n := range s.results {
		put("ovnkube_underlay_claims_total", float64(n), result)
	}

	put("ovnkube_underlay_reused_early_total", float64(s.early))

	counters, err := bpf.ReadNestedCounters(c.agent.cfg.PinDir)
	if err != nil {
		c.log.Debug("no counters of nested pods", "error", err) // until the programs are loaded
		return
	}

	for _, n := range counters {
		put("ovnkube_underlay_packets_total", float64(n.Packets), n.Direction, n.Reason)
		put("ovnkube_underlay_bytes_total", float64(n.Bytes), n.Direction, n.Reason)
	}
}
