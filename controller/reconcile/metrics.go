package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// counts is what has happened; everything else is read from state at scrape.
type counts struct {
	keys    *prometheus.CounterVec
	commits prometheus.Histogram
}

func newCounts() counts {
	return counts{
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovnkube_controller_reconciliations_total",
			Help: "Reconciliations of owners by kind and result: ok, patched (an annotation was written), error.",
		}, []string{"kind", "result"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ovnkube_controller_commit_duration_seconds",
			Help:    "Time to compare a batch of owners with the Northbound database and write the difference.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
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
	l.counts.keys.Collect(ch)
	l.counts.commits.Collect(ch)
	put := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		desc := prometheus.NewDesc("ovnkube_controller_"+name, help, names, nil)
		ch <- prometheus.MustNewConstMetric(desc, kind, v, values...)
	}
	leading, pending, nodes, pods := l.status.leadership()
	put(prometheus.GaugeValue, "leader", "1 if this replica leads.", truth(leading))
	put(prometheus.GaugeValue, "ready", "1 if the database equals the cluster, or this replica could take over at once.", truth(l.Ready() == nil))
	put(prometheus.GaugeValue, "northbound_connected", "1 if connected to the Northbound database.", truth(l.db.Ready() == nil))
	put(prometheus.GaugeValue, "sync_pending_owners", "Owners of the last full sync that are not done.", float64(pending))
	put(prometheus.GaugeValue, "queue_length", "Owners that wait to be reconciled.", float64(l.queueLen()))
	put(prometheus.GaugeValue, "allocated_nodes", "Nodes that have pod subnets.", float64(nodes))
	put(prometheus.GaugeValue, "allocated_pod_addresses", "Addresses that pods have.", float64(pods))
	stats := l.db.Stats()
	put(prometheus.CounterValue, "northbound_transactions_total", "Transactions sent to the Northbound database by result.",
		float64(stats.Transactions-stats.Failed), "result", "ok")
	put(prometheus.CounterValue, "northbound_transactions_total", "Transactions sent to the Northbound database by result.",
		float64(stats.Failed), "result", "error")
	for _, op := range []string{"insert", "update", "mutate", "delete"} {
		put(prometheus.CounterValue, "northbound_operations_total", "Operations in committed transactions by kind.",
			float64(stats.Operations[op]), "operation", op)
	}
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
