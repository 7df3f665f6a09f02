// Package prometheus reads the queries of dashboards and alerts, and runs Debian's Prometheus with
// the rules of deploy/monitoring, for tests that ask it these queries.
package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// Target is what is scraped: URL serves metrics at /metrics.
type Target struct{ Job, Instance, URL string }

// Server is a Prometheus that runs until the test ends.
type Server struct{ url string }

// Start returns when Prometheus is ready.
func Start(t *testing.T, targets ...Target) Server {
	t.Helper()
	dir := t.TempDir()

	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + monitoring.RulesFile + "]\nscrape_configs:\n"
	for i, target := range targets {
		// Prometheus wants names of jobs to differ; what is asked is the label.
		config += fmt.Sprintf("- {job_name: %s-%d, static_configs: [{targets: [%q], labels: {instance: %s, job: %s}}]}\n",
			target.Job, i, strings.TrimPrefix(target.URL, "http://"), target.Instance, target.Job)
	}

	text, _, err := Rules()
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

	daemon, err := process.Start(process.Spec{Tethered: true, Log: filepath.Join(dir, "log"), Argv: []string{
		"prometheus", "--config.file=" + filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address,
	}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := daemon.Stop(10 * time.Second); err != nil {
			t.Error(err)
		}
	})

	s := Server{"http://" + address}

	if err := daemon.Await(t.Context(), "prometheus", func() error { return s.get("/-/ready", nil) }); err != nil {
		t.Fatal(err)
	}

	return s
}

// HasAll waits until there is data for every panel's query and for all that every alert reads, but
// those that read a metric that leaveOut names, and until every alert is evaluated.
func (s Server) HasAll(t *testing.T, leaveOut func(metric string) bool) {
	t.Helper()

	queries, err := Queries()
	if err != nil {
		t.Fatal(err)
	}

	_, rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range rules {
		for _, sel := range Selectors(r.Expr) {
			queries = append(queries, Query{Dashboard: monitoring.RulesFile, Panel: r.Alert, Expr: sel})
		}
	}

	all := len(queries)
	queries = slices.DeleteFunc(queries, func(q Query) bool {
		return slices.ContainsFunc(Selectors(q.Expr), func(sel string) bool { return leaveOut(MetricOf(sel)) })
	})
	asked := len(queries)

	eventually(t, func() error {
		var errs []error

		queries = slices.DeleteFunc(queries, func(q Query) bool {
			err := s.hasData(Substitute(q.Expr, "1m"))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", q.Dashboard, q.Panel, err))
			}

			return err == nil
		})

		return errors.Join(errs...)
	})
	t.Logf("%d of %d queries have data; the others are of metrics that cannot be there", asked, all)
	eventually(t, func() error { return s.evaluated(len(rules)) })
}

func (s Server) get(path string, into any) error {
	response, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s %w", path, response.Status, body, err)
	}

	if into == nil {
		return nil
	}

	return json.Unmarshal(body, into)
}

func (s Server) hasData(expr string) error {
	var reply struct {
		Data struct{ Result []any }
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &reply); err != nil {
		return err
	}

	if len(reply.Data.Result) == 0 {
		return fmt.Errorf("no data for %s", expr)
	}

	return nil
}

// Has reports whether an expression has a value now.
func (s Server) Has(t *testing.T, expr string) bool {
	t.Helper()
	return s.hasData(expr) == nil
}

// Alerts returns how many instances of each alert there are, by name. Those whose condition does
// not hold for long enough yet (state pending) are among them.
func (s Server) Alerts(t *testing.T) map[string]int {
	t.Helper()

	var reply struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	if err := s.get("/api/v1/alerts", &reply); err != nil {
		t.Fatal(err)
	}

	out := map[string]int{}
	for _, a := range reply.Data.Alerts {
		out[a.Labels["alertname"]]++
	}

	return out
}

// evaluated: every rule has been, without an error.
func (s Server) evaluated(want int) error {
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := s.get("/api/v1/rules", &reply); err != nil {
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
