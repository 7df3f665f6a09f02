package deploy

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestOperator: where the Prometheus operator's kinds are there, it gets our alerts as they are,
// and a monitor for each role that it can reach; otherwise nothing.
func TestOperator(t *testing.T) {
	const kinds = "-api-versions=monitoring.coreos.com/v1/PrometheusRule,monitoring.coreos.com/v1/PodMonitor"

	reachable := []string{"-set-string=config.AGENT_METRICS_BIND_ADDRESS=0.0.0.0:9500", "-set-string=config.CONTROLLER_METRICS_BIND_ADDRESS=:9501"}
	for _, tc := range []struct {
		flags          []string
		rules, monitor int
	}{
		{reachable, 0, 0},
		{[]string{kinds}, 1, 0},
		{append([]string{kinds}, reachable...), 1, 2},
		{[]string{kinds, "-set-string=config.AGENT_METRICS_BIND_ADDRESS=127.0.0.1:9500"}, 1, 0},
	} {
		found := operators(t, tc.flags...)
		if len(found["PrometheusRule"]) != tc.rules || len(found["PodMonitor"]) != tc.monitor {
			t.Errorf("%v: %d rules and %d monitors, want %d and %d", tc.flags, len(found["PrometheusRule"]), len(found["PodMonitor"]), tc.rules, tc.monitor)
		}
	}

	text, err := os.ReadFile("monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, operators(t, kinds)["PrometheusRule"][0]["spec"]); diff != "" {
		t.Errorf("alerts (-file +rule)\n%s", diff)
	}
}

// operators returns the objects of the operator's kinds in the chart.
func operators(t *testing.T, flags ...string) map[string][]map[string]any {
	t.Helper()

	out, err := render(t, append(append([]string{member}, flags...), "helm/ovn-ebpf")...)
	if err != nil {
		t.Fatal(err)
	}

	found := map[string][]map[string]any{}

	for _, doc := range bytes.Split(out, []byte("\n---\n")) {
		var o map[string]any
		if err := yaml.UnmarshalStrict(doc, &o); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}

		if o["apiVersion"] == "monitoring.coreos.com/v1" {
			kind := o["kind"].(string)
			found[kind] = append(found[kind], o)
		}
	}

	return found
}
