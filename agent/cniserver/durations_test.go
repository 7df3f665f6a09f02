package cniserver

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDurations_countsRequestsByCommand(t *testing.T) {
	d := NewDurations()
	d.Observe("ADD", false, 50*time.Millisecond)
	d.Observe("nonsense", true, time.Millisecond)
	d.ObservePhase("wiring", time.Millisecond)

	counts := map[string]uint64{}
	registry := prometheus.NewRegistry()
	registry.MustRegister(d)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}

			counts[strings.Join(labels, " ")] = m.Histogram.GetSampleCount()
		}
	}

	for series, want := range map[string]uint64{"ADD false": 1, "ADD true": 0, "other true": 1, "wiring": 1, "total": 0} {
		if got, there := counts[series]; got != want || !there {
			t.Errorf("series %q: %d samples, there %t; want %d", series, got, there, want)
		}
	}

	problems, err := testutil.CollectAndLint(d)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}
