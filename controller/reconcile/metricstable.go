package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Metrics is what the controller shows.
func Metrics() metric.Table {
	gauge := func(name, help string, labels ...string) metric.Family {
		return metric.Family{
			Name:   "ovnkube_controller_" + name,
			Kind:   metric.Gauge,
			Labels: labels,
			Help:   help,
		}
	}

	counter := func(name, help string, labels ...string) metric.Family {
		return metric.Family{
			Name:   "ovnkube_controller_" + name,
			Kind:   metric.Counter,
			Labels: labels,
			Help:   help,
		}
	}

	histogram := func(name, help string, buckets []float64) metric.Family {
		return metric.Family{
			Name:    "ovnkube_controller_" + name,
			Kind:    metric.Histogram,
			Help:    help,
			Buckets: buckets,
		}
	}

	return metric.Table{
		metric.BuildInfo,
		gauge("leader", "1 if this replica leads."),
		gauge("term",
			"Number of the term of the Northbound database that this replica has claimed; 0 while it does not lead."),
		counter("leadership_lost_total",
			"How often this replica stopped leading against its will by reason: lease (not renewed in time, or another has it), fenced (another has claimed the Northbound database, or it was emptied or restored).",
			"reason"),
		gauge("ready", "1 if the database equals the cluster, or this replica could take over at once."),
		gauge("northbound_connected", "1 if connected to the Northbound database."),
		gauge("northbound_schema_missing",
			"1 for each table or column (as Table.column) that plans use and the Northbound database's schema lacks.",
			"what"),
		gauge("sync_pending_owners", "Owners of the last full sync that are not done."),
		gauge("queue_length", "Owners that wait to be reconciled."),
		gauge("waiting_owners", "Owners with an event that the Northbound database does not follow yet."),
		gauge("oldest_event_age_seconds", "For how long the owner that waits longest has waited."),
		gauge("failing_owners",
			"Owners whose rows are not what the cluster says, by kind; /readyz lists them.", "kind"),
		counter("reconciliations_total",
			"Reconciliations of owners by kind and result: ok, patched (an annotation was written), conflict (the object had changed meanwhile; it is read again), postponed (the namespace's load balancers change too fast; docs/services.md), error.",
			"kind", "result"),
		counter("allocation_failures_total",
			"Attempts to allocate that failed by kind of owner and reason: exhausted, taken, invalid (a request that can never be met).",
			"kind", "reason"),
		histogram("commit_duration_seconds",
			"Time to compare a batch of owners with the Northbound database and write the difference.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)),
		histogram("event_latency_seconds",
			"Time from the first event of an owner to the end of the transaction that put it in the Northbound database, its annotation included.",
			latencyBuckets()),
		counter("northbound_transactions_total", "Transactions sent to the Northbound database by result.",
			"result"),
		counter("northbound_operations_total", "Operations in committed transactions by kind.", "operation"),
		gauge("allocated_nodes", "Nodes that have pod subnets."),
		gauge("supported_nodes",
			"Nodes with a pod subnet that a cluster of the largest supported size has; more are served, with an Event BeyondSupportedSize."),
		gauge("allocated_pod_addresses", "Addresses that pods have."),
		gauge("full_node_subnets", "Subnets of nodes without an address left for a pod."),
		gauge("cluster_subnet_nodes", "Nodes with a part of the cluster subnet.", "subnet"),
		gauge("cluster_subnet_nodes_limit", "Nodes that the cluster subnet has parts for.", "subnet"),
		gauge("node_subnet_addresses", "Addresses of pods in a node's subnet; of the 20 fullest subnets.",
			"node", "subnet"),
		gauge("node_subnet_addresses_limit",
			"Addresses for pods that the node's subnet has; of the 20 fullest subnets.", "node", "subnet"),
	}
}

// latencyBuckets are from 1 ms to 30 s. They are close, and 20 ms, which 99 of 100 events
// shall take at most, is the bound of one.
func latencyBuckets() []float64 {
	var out []float64

	for ms := 1.0; ms <= 1e4; ms *= 10 {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7} {
			out = append(out, ms*step/1000)
		}
	}

	return out[:len(out)-2]
}
