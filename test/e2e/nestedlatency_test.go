package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestNestedLatency measures the plugin's ADD in underlay mode and in overlay mode side by side. The
// pods of the overlay already have addresses.
func TestNestedLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement of more than a minute: .ci/full has it, part native")
	}

	over := labOptions(t, lab.Options{Nodes: 2, Cluster: true})
	under := labOptions(t, lab.Options{Nodes: 2, VMs: 2, Cluster: true})
	under.Name, under.Dir, under.AgentArgs, under.Uplink = under.Name+"vm", under.Dir+"vm", nil, ""

	modes := []struct {
		name, node string
		options    lab.Options
		prepared   func() // makes AddPod wait for the controller
		lab        *lab.Lab
		took       []time.Duration
	}{
		{name: "overlay", node: "node1", options: over, prepared: func() {}},
		{name: "underlay", node: "vm1", options: under},
	}
	for i, m := range modes {
		l, err := lab.Up(t.Context(), m.options)
		if err != nil {
			t.Fatal(err)
		}

		downAfter(t, l, m.options)
		modes[i].lab = l
	}

	for i := range latencyPods {
		for j, m := range modes {
			spec := lab.PodSpec{Name: fmt.Sprint("latency-", i), Node: m.node, Prepared: m.prepared}

			pod, err := m.lab.AddPod(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}

			modes[j].took = append(modes[j].took, pod.Took)
			if err := m.lab.DelPod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, m := range modes {
		slices.Sort(m.took)

		quantile := func(percent int) time.Duration {
			return m.took[len(m.took)*percent/100].Round(100 * time.Microsecond)
		}
		t.Logf("%s: %d ADDs, p50 %s, p99 %s", m.name, len(m.took), quantile(50), quantile(99))

		if m.took[0] <= 0 {
			t.Errorf("%s: an ADD took %s", m.name, m.took[0])
		}
	}
}
