package e2e

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// testMetrics: the metrics of the running programs exist and are well formed.
func testMetrics(t *testing.T, c *Cluster) {
	tests := []struct {
		on, url string
		want    []string
	}{
		{"node1", c.Node(1).MetricsURL, append(c.counted(), `ovnkube_agent_ready 1`, `ovs_vswitchd_datapath_lookups_total{result="hit"} `, `ovn_controller_southbound_database_connected 1`, `ovnkube_node_cni_request_duration_seconds_count{`)},
		{"central", "http://127.0.0.1:9409/metrics", []string{`ovnkube_controller_leader 1`, `ovnkube_controller_ready 1`}},
	}
	for _, tt := range tests {
		t.Run(tt.on, func(t *testing.T) {
			client, err := c.Client(tt.on)
			if err != nil {
				t.Fatal(err)
			}

			body := fetch(t, client, tt.url)
			for _, want := range tt.want {
				if !strings.Contains(body, want) || strings.Contains(body, want+"0\n") {
					t.Errorf("no %q, or it is zero", want)
				}
			}

			documented(t, body)

			problems, err := promlint.New(bytes.NewBufferString(body)).Lint()
			if err != nil {
				t.Fatal(err)
			}

			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		})
	}
}

// documented checks that the tables of docs/metrics.md list all metrics, except those of the Go
// runtime.
func documented(t *testing.T, body string) {
	t.Helper()

	parser := expfmt.NewTextParser(model.UTF8Validation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	known := map[string]metric.Kind{}
	for _, f := range append(metrics.Table(), controller.Metrics()...) {
		known[f.Name] = f.Kind
	}

	for name, f := range families {
		own := !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_")
		if own && string(known[name]) != strings.ToLower(f.GetType().String()) {
			t.Errorf("%s is a %s, in the tables %q", name, f.GetType(), known[name])
		}
	}
}

// counted returns the counters that every run must increase, by wiring.
func (c *Cluster) counted() []string {
	host := `ovnkube_gateway_packets_total{direction="rx",port="host",reason="default",verdict="host"} `
	ovn := `ovnkube_gateway_bytes_total{direction="rx",port="ovn",reason="snat_port",verdict="ovn"} `
	entries := `ovnkube_gateway_table_entries{`

	switch {
	case c.flows && c.local:
		return []string{host}
	case c.flows:
		return []string{host, ovn}
	case c.local:
		return []string{host, entries}
	case c.layout == dedicated:
		return []string{entries}
	default:
		return []string{host, ovn, entries}
	}
}

func fetch(t *testing.T, client *http.Client, url string) string {
	t.Helper()

	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, res.Status, err)
	}

	return string(body)
}
