package status

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
)

// maxPage bounds a page of the agent. Metrics of a large node have some megabytes.
const maxPage = 16 << 20

// Agent is the state that the running agent reports.
type Agent struct {
	Served   bool     // it is configured to serve HTTP
	Err      error    // why it does not answer
	Missing  []string // lines of /readyz; none if the agent is ready
	Degraded []string // optional parts of the gateway that do not work
	Faults   []string // of the node's environment: lines with environment.Prefix
	Warnings []string // about the node's environment: lines with environment.Warning
	Drained  bool     // the gateway is drained
	Full     []string // tables without room for all entries

	PortsUsed float64 // ports of the SNAT range in use towards the remote with most of them
	SNATPorts float64 // size of the range; 0 if unknown

	ReasonsKnown bool     // the agent reports the following fields
	NoShortcuts  []string // why no pod has shortcuts at present
	LimitedPods  float64  // pods without shortcuts because of a bandwidth limit
}

// askAgent reads /readyz and /metrics of the agent.
func askAgent(ctx context.Context, p Paths) Agent {
	if p.Metrics == "" {
		return Agent{}
	}

	a := Agent{Served: true}
	url := p.url()

	code, body, err := get(ctx, url+"/readyz")
	if err != nil {
		a.Err = err
		return a
	}

	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if fault, ok := strings.CutPrefix(line, environment.Prefix); ok {
			a.Faults = append(a.Faults, fault)
		} else if warning, ok := strings.CutPrefix(line, environment.Warning); ok {
			a.Warnings = append(a.Warnings, warning)
		} else if code != http.StatusOK {
			a.Missing = append(a.Missing, line)
		}
	}

	code, body, err = get(ctx, url+"/metrics")
	switch {
	case err != nil:
		a.Err = err
		return a
	case code == http.StatusForbidden, code == http.StatusNotFound:
		return a // the metrics need a client certificate, or the agent is still starting: omit their values
	}

	a.Err = a.readMetrics(body)

	return a
}

// readMetrics sets the fields that only the metrics have.
func (a *Agent) readMetrics(metrics string) error {
	families, err := parseMetrics(metrics)
	if err != nil {
		return err
	}

	a.Degraded = nonzero(families, "ovnkube_gateway_degraded", label)
	a.Full = nonzero(families, "ovnkube_gateway_table_unwritten", func(m *dto.Metric) string {
		return fmt.Sprintf("%s (%.0f entries)", label(m), m.GetGauge().GetValue())
	})

	drained, _ := gauge(families, "ovnkube_gateway_drained")
	a.Drained = drained != 0
	a.PortsUsed, _ = gauge(families, "ovnkube_gateway_snat_remote_ports_used_max")
	a.SNATPorts, _ = gauge(families, "ovnkube_gateway_snat_ports")
	a.NoShortcuts = nonzero(families, "ovnkube_gateway_shortcut_prevented", label)
	a.LimitedPods, a.ReasonsKnown = gauge(families, "ovnkube_gateway_shortcut_limited_pods")

	return nil
}

// gauge returns the value of a gauge without labels.
func gauge(families map[string]*dto.MetricFamily, name string) (value float64, known bool) {
	for _, m := range families[name].GetMetric() {
		return m.GetGauge().GetValue(), true
	}

	return 0, false
}

// nonzero returns the texts of the gauges of a name that are not zero and have a label.
func nonzero(families map[string]*dto.MetricFamily, name string, text func(*dto.Metric) string) []string {
	var out []string

	for _, m := range families[name].GetMetric() {
		if m.GetGauge().GetValue() != 0 && len(m.GetLabel()) > 0 {
			out = append(out, text(m))
		}
	}

	return out
}

// label returns the value of the first label.
func label(m *dto.Metric) string { return m.GetLabel()[0].GetValue() }

// parseMetrics reads Prometheus' text format.
func parseMetrics(metrics string) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(metrics))
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}

	return families, nil
}

// get requests a page of the agent.
func get(ctx context.Context, url string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	// The agent runs on this node and the response is not secret, so its certificate need not be
	// verified.
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}

	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()

	b, err := io.ReadAll(io.LimitReader(response.Body, maxPage))

	return response.StatusCode, string(b), err
}
