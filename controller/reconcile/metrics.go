package reconcile

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// fullestSubnets bounds how many nodes' subnets have series of their own.
const fullestSubnets = 20

// counts is what has happened; everything else is read from state at scrape.
type counts struct {
	keys        *prometheus.CounterVec
	allocations *prometheus.CounterVec
	commits     prometheus.Histogram
	latencies   prometheus.Histogram
}

func newCounts() counts {
	return counts{
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovnkube_controller_reconciliations_total",
			Help: "Reconciliations of owners by kind and result: ok, patched (an annotation was written), error.",
		}, []string{"kind", "result"}),
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovnkube_controller_allocation_failures_total",
			Help: "Attempts to allocate that failed by kind of owner and reason: exhausted, taken, invalid (a request that can never be met).",
		}, []string{"kind", "reason"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ovnkube_controller_commit_duration_seconds",
			Help:    "Time to compare a batch of owners with the Northbound database and write the difference.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		latencies: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ovnkube_controller_event_latency_seconds",
			Help:    "Time from the first event of an owner to the end of the transaction that put it in the Northbound database, its annotation included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
	}
}

func (c *counts) latency(d time.Duration) { c.latencies.Observe(d.Seconds()) }

func (c *counts) allocation(kind plan.Kind, err error) {
	reason := "invalid"
	switch {
	case errors.Is(err, ipam.ErrExhausted):
		reason = "exhausted"
	case errors.Is(err, ipam.ErrTaken):
		reason = "taken"
	}
	c.allocations.WithLabelValues(kind.String(), reason).Inc()
}

func (c *counts) key(kind plan.Kind, result string) {
	label := "everything"
	if kind != 0 {
		label = kind.String()
	}
	c.keys.WithLabelValues(label, result).Inc()
}

func (c *counts) commit(d time.Duration) { c.commits.Observe(d.Seconds()) }

// Collector returns all metrics of the loop and its database.
func (l *Loop) Collector() prometheus.Collector { return collector{l} }

type collector struct{ loop *Loop }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	l := c.loop
	for _, m := range []prometheus.Collector{l.counts.keys, l.counts.allocations, l.counts.commits, l.counts.latencies} {
		m.Collect(ch)
	}
	put := putter(ch)
	leading, pending, books := l.status.leadership()
	put.gauge("leader", "1 if this replica leads.", truth(leading))
	put.gauge("ready", "1 if the database equals the cluster, or this replica could take over at once.", truth(l.Ready() == nil))
	put.gauge("northbound_connected", "1 if connected to the Northbound database.", truth(l.db.Ready() == nil))
	put.gauge("sync_pending_owners", "Owners of the last full sync that are not done.", float64(pending))
	put.gauge("queue_length", "Owners that wait to be reconciled.", float64(l.queueLen()))
	_, since, waiting := l.lag.oldest()
	put.gauge("waiting_owners", "Owners with an event that the Northbound database does not follow yet.", float64(waiting))
	oldest := 0.0
	if waiting > 0 {
		oldest = time.Since(since).Seconds()
	}
	put.gauge("oldest_event_age_seconds", "For how long the owner that waits longest has waited.", oldest)
	for kind, n := range l.failures.count() {
		put.gauge("failing_owners", "Owners whose rows are not what the cluster says, by kind; /readyz lists them.", float64(n), "kind", kind.String())
	}
	putUsage(put, books)
	stats := l.db.Stats()
	const transactions = "Transactions sent to the Northbound database by result."
	put.counter("northbound_transactions_total", transactions, float64(stats.Transactions-stats.Failed), "result", "ok")
	put.counter("northbound_transactions_total", transactions, float64(stats.Failed), "result", "error")
	for _, op := range []string{"insert", "update", "mutate", "delete"} {
		put.counter("northbound_operations_total", "Operations in committed transactions by kind.", float64(stats.Operations[op]), "operation", op)
	}
}

// putUsage tells nothing on standby: only the leader has books.
func putUsage(put putter, books *books) {
	var u usage
	if books != nil {
		u = books.usage(fullestSubnets)
	}
	put.gauge("allocated_nodes", "Nodes that have pod subnets.", float64(u.nodes))
	put.gauge("allocated_pod_addresses", "Addresses that pods have.", float64(u.pods))
	put.gauge("full_node_subnets", "Subnets of nodes without an address left for a pod.", float64(u.full))
	for subnet, n := range u.cluster {
		put.gauge("cluster_subnet_nodes", "Nodes with a part of the cluster subnet.", float64(n.Used), "subnet", subnet.String())
		put.gauge("cluster_subnet_nodes_limit", "Nodes that the cluster subnet has parts for.", float64(n.Room), "subnet", subnet.String())
	}
	for _, s := range u.fullest {
		put.gauge("node_subnet_addresses", "Addresses of pods in a node's subnet; of the 20 fullest subnets.",
			float64(s.used), "node", s.node, "subnet", s.subnet.String())
		put.gauge("node_subnet_addresses_limit", "Addresses for pods that the node's subnet has; of the 20 fullest subnets.",
			float64(s.room), "node", s.node, "subnet", s.subnet.String())
	}
}

// putter sends constant metrics.
type putter chan<- prometheus.Metric

func (p putter) gauge(name, help string, v float64, labels ...string) {
	p.put(prometheus.GaugeValue, name, help, v, labels)
}

func (p putter) counter(name, help string, v float64, labels ...string) {
	p.put(prometheus.CounterValue, name, help, v, labels)
}

func (p putter) put(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	p <- prometheus.MustNewConstMetric(prometheus.NewDesc("ovnkube_controller_"+name, help, names, nil), kind, v, values...)
}

func (l *Loop) queueLen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return 0
	}
	return l.queue.Len()
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
