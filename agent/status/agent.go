package status

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Agent is what the running agent says.
type Agent struct {
	Served   bool     // it was told to serve
	Err      error    // it does not answer
	Missing  []string // lines of /readyz
	Degraded []string // optional parts that do not work
	Drained  bool     // the gateway is to be spared
	Ports    float64  // of the SNAT range in use towards the remote where they are most
	Of       float64  // size of the range; 0: not known
}

func askAgent(ctx context.Context, address string) Agent {
	if address == "" {
		return Agent{}
	}
	a := Agent{Served: true}
	ready, body, err := get(ctx, "http://"+address+"/readyz")
	if err != nil {
		a.Err = err
		return a
	}
	if !ready {
		a.Missing = strings.Split(strings.TrimSpace(body), "\n")
	}
	if _, body, err = get(ctx, "http://"+address+"/metrics"); err != nil {
		a.Err = err
		return a
	}
	a.Err = a.read(body)
	return a
}

// read takes from the metrics what no one else knows.
func (a *Agent) read(metrics string) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(metrics))
	if err != nil {
		return fmt.Errorf("read the agent's metrics: %w", err)
	}
	for _, m := range families["ovnkube_gateway_degraded"].GetMetric() {
		if m.GetGauge().GetValue() != 0 && len(m.GetLabel()) > 0 {
			a.Degraded = append(a.Degraded, m.GetLabel()[0].GetValue())
		}
	}
	for _, m := range families["ovnkube_gateway_drained"].GetMetric() {
		a.Drained = m.GetGauge().GetValue() != 0
	}
	for _, m := range families["ovnkube_gateway_snat_remote_ports_used_max"].GetMetric() {
		a.Ports = m.GetGauge().GetValue()
	}
	for _, m := range families["ovnkube_gateway_snat_ports"].GetMetric() {
		a.Of = m.GetGauge().GetValue()
	}
	return nil
}

func get(ctx context.Context, url string) (ok bool, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, 1<<24))
	return response.StatusCode == http.StatusOK, string(b), err
}
