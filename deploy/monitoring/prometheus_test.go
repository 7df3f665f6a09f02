package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	agentmetrics "github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// standIn shows every family of a table with the labels that a node's would have:
// a stand-in for agent and controller, without values that mean anything.
type standIn struct{ t metric.Table }

func (s standIn) Describe(ch chan<- *prometheus.Desc) { metric.NewSet(s.t).Describe(ch) }

func (s standIn) Collect(ch chan<- prometheus.Metric) {
	set := metric.NewSet(s.t)
	for _, f := range s.t {
		for _, labels := range labelsOf(f) {
			if f.Kind == metric.Histogram {
				continue
			}
			set.Put(ch, f.Name, 1, labels...)
		}
		if f.Kind == metric.Histogram {
			h := s.t.Histograms(f.Name)
			for _, labels := range labelsOf(f) {
				h.WithLabelValues(labels...).Observe(1)
			}
			h.Collect(ch)
		}
	}
}

// values are those that labels have, where a query asks for some.
var values = map[string][]string{
	"result": {"hit", "missed", "lost", "ok", "error"}, "command": {"ADD"}, "err": {"true", "false"}, "phase": {"total"}, "table": {"services", "takeover"},
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
	ask := startPrometheus(t)
	queries, err := monitoring.Queries()
	if err != nil {
		t.Fatal(err)
	}
	_, rules, err := monitoring.Rules()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		for _, s := range monitoring.Selectors(r.Expr) {
			queries = append(queries, monitoring.Query{Dashboard: monitoring.RulesFile, Panel: r.Alert, Expr: s})
		}
	}
	all := len(queries)
	eventually(t, func() error {
		var errs []error
		queries = slices.DeleteFunc(queries, func(q monitoring.Query) bool {
			var reply struct{ Data struct{ Result []any } }
			err := ask("/api/v1/query?query="+url.QueryEscape(monitoring.Substitute(q.Expr, "1m")), &reply)
			if err == nil && len(reply.Data.Result) > 0 {
				return true
			}
			errs = append(errs, fmt.Errorf("%s: %s: no data for %s: %w", q.Dashboard, q.Panel, q.Expr, err))
			return false
		})
		return errors.Join(errs...)
	})
	t.Logf("%d queries have data", all)
	eventually(t, func() error { return evaluated(ask, len(rules)) })
}

// evaluated: every rule has been, without an error.
func evaluated(ask func(string, any) error, want int) error {
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := ask("/api/v1/rules", &reply); err != nil {
		return err
	}
	n := 0
	for _, g := range reply.Data.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d rules, want %d", n, want)
	}
	return nil
}

func startPrometheus(t *testing.T) (ask func(path string, into any) error) {
	t.Helper()
	dir, config := t.TempDir(), "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: ["+monitoring.RulesFile+"]\nscrape_configs:\n"
	for job, table := range map[string]metric.Table{"ovn-ebpf-agent": agentmetrics.Table(), "ovn-ebpf-controller": reconcile.Metrics()} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(standIn{table})
		server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(server.Close)
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%q], labels: {instance: node1}}]}\n", job, strings.TrimPrefix(server.URL, "http://"))
	}
	text, _, err := monitoring.Rules()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, monitoring.RulesFile), text, 0o644), os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // Prometheus takes no listener
	daemon := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		if err := daemon.Wait(); err != nil {
			t.Errorf("prometheus: %v", err)
		}
	})
	return func(path string, into any) error {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s %s %w", path, response.Status, body, err)
		}
		return json.Unmarshal(body, into)
	}
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
