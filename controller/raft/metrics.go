package raft

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// replyTimeout limits the time for the replies of all servers.
const replyTimeout = 3 * time.Second

// Metrics returns the table of metrics of OVN's databases. A metric that ovn-kubernetes also has
// keeps its name there. The label of a server is its endpoint, because the identifier of a server
// that does not answer is unknown.
func Metrics() metric.Table {
	gauge := func(name, help string, more ...string) metric.Family {
		return metric.Family{
			Name:   "ovn_db_" + name,
			Kind:   metric.Gauge,
			Labels: append([]string{"db_name", "endpoint"}, more...),
			Help:   help,
		}
	}

	const local = " Only for servers whose control socket is on the controller's machine."

	return metric.Table{
		gauge("up", "1 if the server of the database answers."),
		gauge("db_size_bytes", "Size of the server's database file."+local),
		gauge("cluster_server_id",
			"Always 1, for a clustered database. The labels have the identifiers of the cluster and the server.",
			"cluster_id", "server_id"),
		gauge("cluster_server_role",
			"Always 1. The label has the server's role in the cluster: leader, follower or candidate. A candidate is shown as a follower if its control socket is not on the controller's machine.",
			"server_role"),
		gauge("cluster_server_connected", "1 if the server is in contact with a majority of the cluster."),
		gauge("cluster_log_entry_index",
			"Index of the log entry that the server's clients see. A server that is behind has a smaller index than the others."),
		gauge("cluster_term", "The server's term, which grows with each election."+local),
		gauge("cluster_servers", "Members of the cluster that the server knows."+local),
		gauge("cluster_log_index_start", "Index of the first entry in the server's log."+local),
		gauge("cluster_log_index_next", "Index of the next entry in the server's log."+local),
		gauge("cluster_log_not_committed", "Entries in the server's log that are not committed."+local),
		gauge("cluster_log_not_applied", "Entries in the server's log that are not applied."+local),
	}
}

// Collector queries the servers at each scrape, concurrently and for at most replyTimeout.
type Collector struct {
	databases []Database
	set       metric.Set
	log       *slog.Logger
}

// NewCollector returns a Collector for these databases. The caller must register it.
func NewCollector(log *slog.Logger, databases ...Database) *Collector {
	return &Collector{databases, metric.NewSet(Metrics()), log}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { c.set.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()

	statuses := make([]chan []Server, len(c.databases)) // one result each
	for i, d := range c.databases {
		statuses[i] = make(chan []Server, 1)
		go func() { statuses[i] <- d.Status(ctx) }()
	}

	for i, d := range c.databases {
		for _, s := range <-statuses[i] {
			if s.Err != nil {
				c.log.Debug("a database's server does not answer", "error", s.Err)
			}

			s.putValues(func(name string, v float64, more ...string) {
				c.set.Put(ch, "ovn_db_"+name, v, append([]string{d.Name, s.Endpoint}, more...)...)
			})
		}
	}
}

// putValues calls put for each known value. more are the labels of this metric besides database and
// endpoint.
func (s Server) putValues(put func(name string, v float64, more ...string)) {
	put("up", metric.One(s.Err == nil))

	if s.Size > 0 {
		put("db_size_bytes", float64(s.Size))
	}

	if !s.Clustered {
		return
	}

	put("cluster_server_id", 1, s.Cluster, s.ID)
	put("cluster_server_role", 1, s.role())
	put("cluster_server_connected", metric.One(s.Connected))
	put("cluster_log_entry_index", float64(s.Index))

	l := s.Local
	if l == nil {
		return
	}

	put("cluster_term", float64(l.Term))
	put("cluster_servers", float64(l.Servers))
	put("cluster_log_index_start", float64(l.First))
	put("cluster_log_index_next", float64(l.Next))
	put("cluster_log_not_committed", float64(l.NotCommitted))
	put("cluster_log_not_applied", float64(l.NotApplied))
}

// role returns the role that clients see, or candidate during an election.
func (s Server) role() string {
	switch {
	case s.Leader:
		return "leader"
	case s.Local != nil && s.Local.Role == "candidate":
		return "candidate"
	}

	return "follower"
}
