package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

// fullestSubnets bounds how many nodes' subnets have series of their own.
const fullestSubnets = 20

// counts holds counters of past operations. All other metrics are read from state at the scrape, by
// collector. metricstable.go describes all metrics.
type counts struct {
	keys        *prometheus.CounterVec
	allocations *prometheus.CounterVec
	commits     *prometheus.HistogramVec
	latencies   *prometheus.HistogramVec
	losses      *prometheus.CounterVec
}

// newCounts returns the counters with a series, at zero, for each value of their labels that is
// known in advance.
func newCounts() counts {
	t := Metrics()

	c := counts{
		keys:        t.Counters("ovnkube_controller_reconciliations_total"),
		allocations: t.Counters("ovnkube_controller_allocation_failures_total"),
		commits:     t.Histograms("ovnkube_controller_commit_duration_seconds"),
		latencies:   t.Histograms("ovnkube_controller_event_latency_seconds"),
		losses:      t.Counters("ovnkube_controller_leadership_lost_total"),
	}
	for _, reason := range []string{election.LostLease, lostFenced} {
		c.losses.WithLabelValues(reason)
	}

	c.commits.WithLabelValues()
	c.latencies.WithLabelValues()

	for _, kind := range []plan.Kind{plan.KindNode, plan.KindPod} {
		for _, reason := range []string{"exhausted", "taken", "invalid"} {
			c.allocations.WithLabelValues(kind.String(), reason)
		}
	}

	return c
}

// countLoss counts a loss of leadership.
func (c *counts) countLoss(reason string) { c.losses.WithLabelValues(reason).Inc() }

// observeLatency records the time from an event of an owner until its rows were written.
func (c *counts) observeLatency(d time.Duration) { c.latencies.WithLabelValues().Observe(d.Seconds()) }

// countAllocationFailure counts a failed allocation.
func (c *counts) countAllocationFailure(kind plan.Kind, err error) {
	reason := "invalid"

	switch {
	case errors.Is(err, ipam.ErrExhausted):
		reason = "exhausted"
	case errors.Is(err, ipam.ErrTaken):
		reason = "taken"
	}

	c.allocations.WithLabelValues(kind.String(), reason).Inc()
}

// countKey counts a reconciliation. Kind 0 is that of fullSyncKey.
func (c *counts) countKey(kind plan.Kind, result string) {
	label := "everything"
	if kind != 0 {
		label = kind.String()
	}

	c.keys.WithLabelValues(label, result).Inc()
}

// observeCommit records the duration of a commit.
func (c *counts) observeCommit(d time.Duration) { c.commits.WithLabelValues().Observe(d.Seconds()) }

// Collector returns all metrics of the loop and its database.
func (l *Loop) Collector() prometheus.Collector { return collector{l} }

// collector reads the metrics of a loop at each scrape.
type collector struct{ loop *Loop }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	l := c.loop

	counts := []prometheus.Collector{
		l.counts.keys, l.counts.allocations, l.counts.commits, l.counts.latencies, l.counts.losses,
	}
	for _, m := range counts {
		m.Collect(ch)
	}

	values := metric.NewSet(Metrics())
	put := func(name string, v float64, labels ...string) {
		values.Put(ch, "ovnkube_controller_"+name, v, labels...)
	}

	values.Put(ch, metric.BuildInfo.Name, 1, version.Labels()...)

	leading, pending, allocator := l.status.leadership()
	put("leader", metric.One(leading))
	put("term", float64(l.status.claimedTerm()))
	put("ready", metric.One(l.Ready() == nil))
	put("northbound_connected", metric.One(l.db.Ready() == nil))

	for _, tableOrColumn := range l.db.Missing() {
		put("northbound_schema_missing", 1, tableOrColumn)
	}

	put("sync_pending_owners", float64(pending))
	put("queue_length", float64(l.queueLen()))
	_, since, waiting := l.lag.oldest()
	put("waiting_owners", float64(waiting))

	oldest := 0.0
	if waiting > 0 {
		oldest = time.Since(since).Seconds()
	}

	put("oldest_event_age_seconds", oldest)
	put("policies_to_write", float64(l.lag.heldOwners(plan.KindPolicy, plan.KindSelector)))
	put("port_groups_to_join", float64(l.db.Joining()))

	for kind, n := range l.failures.count() {
		put("failing_owners", float64(n), kind.String())
	}

	putUsage(put, allocator)

	stats := l.db.Stats()
	put("northbound_transactions_total", float64(stats.Transactions-stats.Failed), "ok")
	put("northbound_transactions_total", float64(stats.Failed), "error")

	for _, op := range []string{"insert", "update", "mutate", "delete"} {
		put("northbound_operations_total", float64(stats.Operations[op]), op)
	}
}

// putUsage sends the usage of nodes' subnets. On standby, allocator is nil and the values are 0.
func putUsage(put putter, allocator *ipam.Allocator) {
	var u ipam.Usage
	if allocator != nil {
		u = allocator.Usage(fullestSubnets)
	}

	put("allocated_nodes", float64(u.Nodes))
	put("supported_nodes", plan.SupportedNodes)
	put("allocated_pod_addresses", float64(u.Addresses))
	put("full_node_subnets", float64(u.Full))

	for subnet, n := range u.Cluster {
		put("cluster_subnet_nodes", float64(n.Used), subnet.String())
		put("cluster_subnet_nodes_limit", float64(n.Room), subnet.String())
	}

	for _, s := range u.Fullest {
		put("node_subnet_addresses", float64(s.Used), s.Node, s.Subnet.String())
		put("node_subnet_addresses_limit", float64(s.Room), s.Node, s.Subnet.String())
	}
}

// putter sends a value of a metric, whose name is given without the prefix "ovnkube_controller_".
type putter func(name string, v float64, labels ...string)

// queueLen returns the number of keys in the queue, or 0 without leadership.
func (l *Loop) queueLen() int {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.queue == nil {
		return 0
	}

	return l.queue.Len()
}
