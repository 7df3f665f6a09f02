package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// shadowRate makes every agent of every lab compare its programs' decisions with the model.
const shadowRate = "--gateway-shadow-rate=500"

// agreed checks that no agent has logged a disagreement between programs and model, including
// agents that have ended, with their counters.
func agreed(t *testing.T, dir string) {
	t.Helper()

	logs, err := filepath.Glob(filepath.Join(dir, "log", "agent-*.log"))
	if err != nil {
		t.Error(err)
	}

	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}

		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "programs and the model disagree") {
				t.Errorf("%s: %s", filepath.Base(path), line)
			}
		}
	}
}

// testShadow: the agents have compared decisions without a mismatch.
func testShadow(t *testing.T, c *Cluster) {
	for _, n := range []int{1, 2} {
		node := c.Node(n)

		client, err := c.Client(node.Name)
		if err != nil {
			t.Fatal(err)
		}

		body := fetch(t, client, node.MetricsURL)
		if c.flows {
			if strings.Contains(body, "ovnkube_gateway_shadow") {
				t.Errorf("%s: flows are compared with the model", node.Name)
			}

			continue
		}

		parser := expfmt.NewTextParser(model.UTF8Validation)

		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		sums := map[string]float64{}

		for name, f := range families {
			for _, m := range f.GetMetric() {
				sums[name] += m.GetCounter().GetValue()
			}
		}

		compared, skipped := sums["ovnkube_gateway_shadow_compared_total"], sums["ovnkube_gateway_shadow_skipped_total"]
		if families["ovnkube_gateway_shadow_mismatch_total"] == nil || sums["ovnkube_gateway_shadow_mismatch_total"] != 0 || compared == 0 {
			t.Errorf("%s: %v compared, mismatches %v", node.Name, compared, families["ovnkube_gateway_shadow_mismatch_total"])
		}

		if skipped*10 > compared { // a slow VM reads entries late
			t.Errorf("%s: %v skipped of %v: %v", node.Name, skipped, compared, families["ovnkube_gateway_shadow_skipped_total"])
		}

		t.Logf("%s: %v compared by %d reasons, %v skipped", node.Name, compared, len(families["ovnkube_gateway_shadow_compared_total"].GetMetric()), skipped)
	}
}
