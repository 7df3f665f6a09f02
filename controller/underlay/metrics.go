package underlay

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

// neediestNodes bounds how many nodes have their own series: those with the fewest free ports.
const neediestNodes = 20

// Metrics lists the metrics of the controller in underlay mode.
func Metrics() metric.Table {
	const controller, requests = "ovnkube_controller_", "ovnkube_openstack_"

	return metric.Table{
		metric.BuildInfo,
		{Name: controller + "leader", Kind: metric.Gauge, Help: "1 if this replica leads."},
		{
			Name:   controller + "leadership_lost_total",
			Kind:   metric.Counter,
			Labels: []string{"reason"},
			Help:   "Losses of this replica's leadership, by reason: lease (it was not renewed in time, or another replica has it).",
		},
		{
			Name: controller + "ready",
			Kind: metric.Gauge,
			Help: "1 if this replica serves the nodes, or could take over at once.",
		},
		{
			Name:   controller + "pools",
			Kind:   metric.Gauge,
			Labels: []string{"state"},
			Help:   "Pools of nodes by state: ok, problem (an Event about the Node has the reason), failing (the last request failed), leaving (the Node is gone).",
		},
		{
			Name:   controller + "pool_ports",
			Kind:   metric.Gauge,
			Labels: []string{"node", "state"},
			Help:   "Published ports of a node's pool by state: usable, held. Only the 20 nodes with the fewest free ports are shown.",
		},
		{
			Name:   controller + "pool_pods",
			Kind:   metric.Gauge,
			Labels: []string{"node"},
			Help:   "Pods that use ports of the node's pool. Only the nodes of ovnkube_controller_pool_ports are shown.",
		},
		{
			Name:   requests + "requests_total",
			Kind:   metric.Counter,
			Labels: []string{"call", "kind"},
			Help:   "Requests to Neutron by call and result: ok, quota, conflict, gone, busy, away, refused.",
		},
		{
			Name:    requests + "request_duration_seconds",
			Kind:    metric.Histogram,
			Labels:  []string{"call"},
			Help:    "Time from a request to Neutron to its response, including the wait for the request rate.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 10),
		},
	}
}

// counts holds counters of past operations. All other metrics are read from state at the scrape.
type counts struct {
	losses    *prometheus.CounterVec
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

func newCounts() *counts {
	t := Metrics()
	c := &counts{
		losses:    t.Counters("ovnkube_controller_leadership_lost_total"),
		requests:  t.Counters("ovnkube_openstack_requests_total"),
		durations: t.Histograms("ovnkube_openstack_request_duration_seconds"),
	}
	c.losses.WithLabelValues(election.LostLease) // shown from the start, at zero

	return c
}

// countRequest counts a call of OpenStack's API.
func (c *counts) countRequest(call string, kind openstack.Kind, took time.Duration) {
	c.requests.WithLabelValues(call, kind.String()).Inc()
	c.durations.WithLabelValues(call).Observe(took.Seconds())
}

// collector reads the controller's state at the scrape. It implements prometheus.Collector.
type collector struct {
	*controller
	set metric.Set
}

func newCollector(c *controller) *collector { return &collector{c, metric.NewSet(Metrics())} }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { c.set.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	put := func(name string, v float64, labels ...string) { c.set.Put(ch, "ovnkube_"+name, v, labels...) }
	put("build_info", 1, version.Labels()...)
	put("controller_leader", metric.One(c.status.leads()))
	put("controller_ready", metric.One(c.ready() == nil))

	for _, m := range []prometheus.Collector{c.counts.losses, c.counts.requests, c.counts.durations} {
		m.Collect(ch)
	}

	var all []Status
	if pools := c.pools.Load(); pools != nil {
		all = pools.Status()
	}

	states := map[string]int{"ok": 0, "problem": 0, "failing": 0, "leaving": 0}
	for _, s := range all {
		states[s.state()]++
	}

	for state, n := range states {
		put("controller_pools", float64(n), state)
	}

	slices.SortStableFunc(all, func(a, b Status) int { return cmp.Compare(a.Ports-a.Pods, b.Ports-b.Pods) })

	for _, s := range all[:min(len(all), neediestNodes)] {
		put("controller_pool_ports", float64(s.Ports), s.Node, "usable")
		put("controller_pool_ports", float64(s.Held), s.Node, "held")
		put("controller_pool_pods", float64(s.Pods), s.Node)
	}
}

// state returns the state of a pool for the metric pools.
func (s Status) state() string {
	switch {
	case s.Leaving:
		return "leaving"
	case s.Err != nil:
		return "failing"
	case len(s.Problems) > 0:
		return "problem"
	}

	return "ok"
}
