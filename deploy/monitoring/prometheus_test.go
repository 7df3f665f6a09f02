package monitoring_test

import (
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	agentmetrics "github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	promtest "github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// standIn shows every family of a table with the labels that a node's would have:
// a stand-in for agent and controller, without values that mean anything: they are
// the number of the scrape.
type standIn struct {
	t       metric.Table
	scraped *atomic.Int64
}

func (s standIn) Describe(ch chan<- *prometheus.Desc) { metric.NewSet(s.t).Describe(ch) }

func (s standIn) Collect(ch chan<- prometheus.Metric) {
	set := metric.NewSet(s.t)

	n := s.scraped.Add(1)
	for _, f := range s.t {
		for _, labels := range labelsOf(f) {
			if f.Kind == metric.Histogram {
				continue
			}

			set.Put(ch, f.Name, float64(n), labels...)
		}

		if f.Kind == metric.Histogram {
			h := s.t.Histograms(f.Name)
			for _, labels := range labelsOf(f) {
				for range n {
					h.WithLabelValues(labels...).Observe(1)
				}
			}

			h.Collect(ch)
		}
	}
}

// values are those that labels have, where a query asks for some.
var values = map[string][]string{
	"result": {"hit", "missed", "lost", "ok", "error"}, "command": {"ADD"}, "server_role": {"leader"}, "err": {"true", "false"}, "phase": {"total"}, "table": {"services", "takeover"},
}

// labelsOf returns every combination.
func labelsOf(f metric.Family) [][]string {
	if slices.Equal(f.Labels, []string{"port", "direction", "verdict", "reason"}) {
		var out [][]string
		for _, c := range bpf.Reasons() {
			out = append(out, []string{c.Port, c.Direction, c.Verdict, c.Reason})
		}

		return out
	}

	out := [][]string{nil}

	for _, label := range f.Labels {
		some := values[label]
		if some == nil {
			some = []string{"x"}
		}

		var longer [][]string

		for _, head := range out {
			for _, v := range some {
				longer = append(longer, append(slices.Clone(head), v))
			}
		}

		out = longer
	}

	return out
}

// A real Prometheus has data for every panel's query and for all that every alert
// reads, and evaluates every alert, when each metric of the tables is there.
func TestPrometheus(t *testing.T) {
	var targets []promtest.Target

	for job, table := range map[string]metric.Table{"ovn-ebpf-agent": agentmetrics.Table(), "ovn-ebpf-controller": controller.Metrics()} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(standIn{table, &atomic.Int64{}})
		server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(server.Close)
		targets = append(targets, promtest.Target{Job: job, Instance: "node1", URL: server.URL})
	}

	server := promtest.Start(t, targets...)
	server.HasAll(t, func(string) bool { return false })

	if server.Has(t, `up{job="none"}`) {
		t.Error("a query of a job that does not exist has data")
	}
}
