package e2e

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
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// notHere are metrics that this lab cannot have.
var notHere = map[string]string{
	"ovnkube_gateway_conntrack_failures_total":  "only the kernel's connection tracker counts them",
	"ovnkube_gateway_program_runs_total":        "a sysctl of the whole machine",
	"ovnkube_gateway_program_run_seconds_total": "likewise",
}

// testMonitoring: a real Prometheus that scrapes agents and controller finds data for
// every panel and for all that every alert reads.
func testMonitoring(t *testing.T, c *Cluster) {
	p := startPrometheus(t, c)
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
	queries = slices.DeleteFunc(queries, func(q monitoring.Query) bool {
		return slices.ContainsFunc(monitoring.Selectors(q.Expr), func(s string) bool { return notHere[monitoring.Name(s)] != "" })
	})
	asked := len(queries)
	within(t, "data for every query", func() error {
		var errs []error
		queries = slices.DeleteFunc(queries, func(q monitoring.Query) bool {
			err := p.hasData(monitoring.Substitute(q.Expr, "1m"))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", q.Dashboard, q.Panel, err))
			}
			return err == nil
		})
		return errors.Join(errs...)
	})
	t.Logf("%d of %d queries have data; the others are of metrics that this lab cannot have", asked, all)
	within(t, "evaluation of the rules", func() error { return p.evaluated(len(rules)) })
}

type prometheus struct{ url string }

func startPrometheus(t *testing.T, c *Cluster) prometheus {
	t.Helper()
	dir := t.TempDir()
	text, _, err := monitoring.Rules()
	if err != nil {
		t.Fatal(err)
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + monitoring.RulesFile + "]\nscrape_configs:\n" +
		"- job_name: ovn-ebpf-agent\n  static_configs:\n" + c.target(t, "node1", c.Node(1).MetricsURL) + c.target(t, "node2", c.Node(2).MetricsURL) +
		"- job_name: ovn-ebpf-controller\n  static_configs:\n" + c.target(t, "central", "http://127.0.0.1:9409/metrics")
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
	p := prometheus{"http://" + address}
	if err := daemon.Await(t.Context(), "prometheus", func() error { return p.get("/-/ready", nil) }); err != nil {
		t.Fatal(err)
	}
	return p
}

// target leads Prometheus, which is in no namespace of the lab, to what is served there.
func (c *Cluster) target(t *testing.T, on, address string) string {
	t.Helper()
	client, err := c.Client(on)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		response, err := client.Get(address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("  - {targets: [%q], labels: {instance: %s}}\n", strings.TrimPrefix(server.URL, "http://"), on)
}

func (p prometheus) get(path string, into any) error {
	response, err := http.Get(p.url + path)
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

func (p prometheus) hasData(expr string) error {
	var reply struct {
		Data struct{ Result []any }
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(expr), &reply); err != nil {
		return err
	}
	if len(reply.Data.Result) == 0 {
		return fmt.Errorf("no data for %s", expr)
	}
	return nil
}

// evaluated: every rule has been, without an error.
func (p prometheus) evaluated(want int) error {
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := p.get("/api/v1/rules", &reply); err != nil {
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
