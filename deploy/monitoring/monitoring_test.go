package monitoring_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentmetrics "github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	promtest "github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// known are the series there are, by name.
func known() map[string]bool {
	names := map[string]bool{"up": true}
	for _, f := range append(agentmetrics.Table(), controller.Metrics()...) {
		names[f.Name] = true
		if f.Kind == metric.Histogram {
			delete(names, f.Name)
			names[f.Name+"_bucket"], names[f.Name+"_sum"], names[f.Name+"_count"] = true, true, true
		}
	}

	return names
}

// Every query reads metrics that there are.
func TestNames(t *testing.T) {
	queries, err := promtest.Queries()
	if err != nil || len(queries) == 0 {
		t.Fatalf("%d queries, %v", len(queries), err)
	}

	_, rules, err := promtest.Rules()
	if err != nil || len(rules) == 0 {
		t.Fatalf("%d rules, %v", len(rules), err)
	}

	for _, r := range rules {
		queries = append(queries, promtest.Query{Dashboard: monitoring.RulesFile, Panel: r.Alert, Expr: r.Expr})
	}

	names := known()

	for _, q := range queries {
		selectors := promtest.Selectors(q.Expr)
		if len(selectors) == 0 {
			t.Errorf("%s: %s reads nothing: %s", q.Dashboard, q.Panel, q.Expr)
		}

		for _, s := range selectors {
			if !names[promtest.MetricOf(s)] {
				t.Errorf("%s: %s reads %s, which no part of ours exports", q.Dashboard, q.Panel, s)
			}
		}
	}
}

// TestRunbook checks that each alert has a severity, and a part of its name in the runbook.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}

	_, rules, err := promtest.Rules()
	if err != nil {
		t.Fatal(err)
	}

	parts := map[string]bool{}

	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "## "); is {
			parts[name] = false
		}
	}

	for _, r := range rules {
		if _, is := parts[r.Alert]; !is {
			t.Errorf("docs/runbook.md has no part %s", r.Alert)
		}

		parts[r.Alert] = true
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/runbook.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: runbook %q", r.Alert, r.Annotations["runbook_url"])
		}

		if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
	}

	for name, used := range parts {
		if !used && name != "Events about a Node" && name != "Other situations" {
			t.Errorf("docs/runbook.md: %s is no alert", name)
		}
	}
}

// TestDocumentListsAlerts checks that the table of docs/monitoring.md lists each alert once, and
// nothing else.
func TestDocumentListsAlerts(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}

	_, table, found := strings.Cut(string(text), "## Alerts\n")

	table, _, end := strings.Cut(table, "\n## ")
	if !found || !end {
		t.Fatal("docs/monitoring.md has no part Alerts")
	}

	listed, want := regexp.MustCompile("OVNEBPF[A-Za-z]+").FindAllString(table, -1), []string(nil)

	_, rules, err := promtest.Rules()
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range rules {
		want = append(want, r.Alert)
	}

	slices.Sort(listed)
	slices.Sort(want)

	if d := cmp.Diff(want, listed); d != "" {
		t.Errorf("alerts of rules.yaml (-) and of docs/monitoring.md (+): %s", d)
	}

	if number := fmt.Sprintf("%d [alerts](#alerts)", len(want)); !strings.Contains(string(text), number) {
		t.Errorf("docs/monitoring.md does not have %q", number)
	}
}

// TestPromtool has Prometheus' own tool check the rules.
func TestPromtool(t *testing.T) {
	if out, err := exec.Command("promtool", "check", "rules", "--lint-fatal", monitoring.RulesFile).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}
