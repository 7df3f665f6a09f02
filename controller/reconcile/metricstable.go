package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Metrics returns the metrics of the controller's loop.
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
			"Number of the term that this replica has claimed in the Northbound database. 0 while it does not lead."),
		counter("leadership_lost_total",
			"Losses of this replica's leadership, by reason: lease (it was not renewed in time, or another replica has it), fenced (another replica has claimed the Northbound database, or the database was emptied or restored).",
			"reason"),
		gauge("ready", "1 if the Northbound database is in sync with the cluster, or this replica could take over at once."),
		gauge("northbound_connected", "1 if connected to the Northbound database."),
		gauge("northbound_schema_missing",
			"1 for each table or column (as Table.column) that the controller uses, but the schema of the Northbound database lacks.",
			"what"),
		gauge("sync_pending_owners", "Owners that the last full sync has not reconciled yet."),
		gauge("queue_length", "Owners waiting to be reconciled."),
		gauge("waiting_owners", "Owners with an event that is not in the Northbound database yet. Those that a pace holds do not count (docs/services.md#pace)."),
		gauge("oldest_event_age_seconds", "Age of the oldest event that is not in the Northbound database yet."),
		gauge("policies_to_write",
			"NetworkPolicies and selectors of policies that are written later, because many have changed (docs/networkpolicy.md#pace)."),
		gauge("port_groups_to_join",
			"Port groups that pods have yet to join, because the policies of many namespaces select them (docs/networkpolicy.md#memberships)."),
		gauge("failing_owners",
			"Owners whose rows do not match the cluster, by kind. /readyz lists them.", "kind"),
		counter("reconciliations_total",
			"Reconciliations of owners, by kind and result: ok, patched (an annotation was written), conflict (the object had changed meanwhile, and is read again), postponed (the load balancers of the namespace change too often, see docs/services.md), error.",
			"kind", "result"),
		counter("allocation_failures_total",
			"Failed allocations, by kind of owner and reason: exhausted, taken, invalid (a request that can never be satisfied).",
			"kind", "reason"),
		histogram("commit_duration_seconds",
			"Time to compare a batch of owners with the Northbound database, and to write the difference.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)),
		histogram("event_latency_seconds",
			"Time from the first event of an owner until its rows are in the Northbound database, including the time to write its annotation.",
			latencyBuckets()),
		counter("northbound_transactions_total", "Transactions sent to the Northbound database, by result.",
			"result"),
		counter("northbound_operations_total", "Operations in committed transactions, by kind.", "operation"),
		gauge("allocated_nodes", "Nodes with pod subnets."),
		gauge("supported_nodes",
			"Largest supported number of nodes with pod subnets. More nodes are also served, with an Event BeyondSupportedSize."),
		gauge("allocated_pod_addresses", "Addresses allocated to pods."),
		gauge("full_node_subnets", "Subnets of nodes without a free address for a pod."),
		gauge("cluster_subnet_nodes", "Nodes with a subnet out of this cluster subnet.", "subnet"),
		gauge("cluster_subnet_nodes_limit", "Maximum number of nodes with a subnet out of this cluster subnet.", "subnet"),
		gauge("node_subnet_addresses", "Addresses that pods use in a node's subnet. Only the 20 fullest subnets are shown.",
			"node", "subnet"),
		gauge("node_subnet_addresses_limit",
			"Maximum number of addresses for pods in a node's subnet. Only the 20 fullest subnets are shown.", "node", "subnet"),
	}
}

// latencyBuckets returns the bounds of buckets from 1 ms to 30 s: six per factor of ten. One
// bound is 20 ms, because 99 of 100 events must take at most 20 ms.
func latencyBuckets() []float64 {
	var out []float64

	for ms := 1.0; ms <= 1e4; ms *= 10 {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7} {
			out = append(out, ms*step/1000)
		}
	}

	return out[:len(out)-2] // without 50 s and 70 s
}
