package metric_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	agentmetrics "github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	underlaycontroller "github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

// The tables of docs/metrics.md are those that the collectors are made from.
func TestDocument(t *testing.T) {
	document.Check(t, "../docs/metrics.md", map[string]string{
		"agent": markdown(agentmetrics.Table()), "underlay": markdown(underlay.Table()), "controller": markdown(controller.Metrics()),
		"underlay-controller": markdown(underlaycontroller.Metrics()), "reasons": reasons(),
	}, *update, "go test ./metric -update")
}

// markdown formats a table of metrics for a document.
func markdown(t metric.Table) string {
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")

	for _, f := range t {
		labels := strings.Join(f.Labels, "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}

		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, labels,
			strings.ReplaceAll(f.Help, "|", `\|`))
	}

	return b.String()
}

var name = regexp.MustCompile(`\b(ovnkube|ovn_ebpf)_[a-z0-9_]+`)

// Every metric that a document names is one of ours. What ends in _ stands for all that begin so.
func TestDocumentedNames(t *testing.T) {
	var families []string
	for _, f := range slices.Concat(agentmetrics.Table(), underlay.Table(), controller.Metrics(), underlaycontroller.Metrics()) {
		families = append(families, f.Name)
		if f.Kind == metric.Histogram {
			families = append(families, f.Name+"_bucket", f.Name+"_sum", f.Name+"_count")
		}
	}

	documents, err := filepath.Glob("../docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("%d documents: %v", len(documents), err)
	}

	named := 0

	for _, path := range append(documents, "../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range name.FindAllString(string(text), -1) {
			named++

			is := func(family string) bool {
				return family == n || strings.HasSuffix(n, "_") && strings.HasPrefix(family, n)
			}
			if !slices.ContainsFunc(families, is) {
				t.Errorf("%s: no metric is called %s", path, n)
			}
		}
	}

	if named < 50 {
		t.Errorf("%d names: are they still found?", named)
	}
}

// reasons are the label sets of packets and bytes.
func reasons() string {
	var b strings.Builder
	b.WriteString("| port | direction | verdict | reason |\n|---|---|---|---|\n")

	for _, c := range bpf.Reasons() {
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", c.Port, c.Direction, c.Verdict, c.Reason)
	}

	alone := gateway.FlowReasons()
	for _, c := range alone[len(bpf.Reasons()):] {
		fmt.Fprintf(&b, "| %s | %s | %s | `%s`, with the backend openflow |\n", c.Port, c.Direction, c.Verdict, c.Reason)
	}

	return b.String()
}

// everything has one series of each family.
type everything struct{ t metric.Table }

func (e everything) Describe(ch chan<- *prometheus.Desc) { metric.NewSet(e.t).Describe(ch) }

func (e everything) Collect(ch chan<- prometheus.Metric) {
	set := metric.NewSet(e.t)
	for _, f := range e.t {
		if f.Kind == metric.Histogram {
			h := e.t.Histograms(f.Name)
			h.WithLabelValues(f.Labels...).Observe(1)
			h.Collect(ch)

			continue
		}

		set.Put(ch, f.Name, 1, f.Labels...)
	}
}

// Every family is as Prometheus wants it, also those that a test's node has none of.
func TestLint(t *testing.T) {
	for name, table := range map[string]metric.Table{"agent": agentmetrics.Table(), "underlay": underlay.Table(), "controller": controller.Metrics(), "underlay-controller": underlaycontroller.Metrics()} {
		problems, err := testutil.CollectAndLint(everything{table})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// A name that is in no table, or with other labels, is a mistake that shows at once.
func TestPutUnknown(t *testing.T) {
	set := metric.NewSet(metric.Table{{Name: "a", Kind: metric.Gauge, Labels: []string{"b"}}})

	for name, labels := range map[string][]string{"a": nil, "c": {"x"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s with %d labels was taken", name, len(labels))
				}
			}()

			set.Put(make(chan prometheus.Metric, 1), name, 1, labels...)
		}()
	}
}
