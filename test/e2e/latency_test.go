package e2e

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

const latencyPods = 100

// TestLatency measures the plugin's ADD with the real OVN for pods that already have addresses, one
// after another and all at once. docs/cni.md has the table.
func TestLatency(t *testing.T) {
	if os.Getenv("OVN_EBPF_E2E_LATENCY") == "" {
		t.Skip("a measurement without checks: OVN_EBPF_E2E_LATENCY is not set")
	}

	o := labOptions(t, lab.Options{Nodes: 2, Cluster: true})

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)

	for _, way := range []struct {
		name   string
		atOnce int
	}{{"one after the other", 1}, {"100 at once", latencyPods}} {
		t.Run(way.name, func(t *testing.T) {
			before := readPhases(t, l)
			pods := make([]*lab.Pod, latencyPods)

			var prepared sync.WaitGroup
			prepared.Add(way.atOnce)

			var group errgroup.Group
			group.SetLimit(way.atOnce)

			for i := range pods {
				group.Go(func() (err error) {
					pods[i], err = l.AddPod(t.Context(), lab.PodSpec{
						Name: fmt.Sprint("latency", way.atOnce, "-", i), Node: "node1", Prepared: func() {
							if way.atOnce > 1 {
								prepared.Done()
								prepared.Wait()
							}
						},
					})

					return err
				})
			}

			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}

			printPhases(t, pods, before, readPhases(t, l))

			for _, p := range pods {
				if err := l.DelPod(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// phases are the agent's histograms of the parts of an ADD: cumulative counts by phase and upper
// bound.
type phases map[string]map[float64]float64

const sumKey = -1

func readPhases(t *testing.T, l *lab.Lab) phases {
	t.Helper()

	client, err := l.Client("node1")
	if err != nil {
		t.Fatal(err)
	}

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(fetch(t, client, l.Node(1).MetricsURL)))
	if err != nil {
		t.Fatal(err)
	}

	out := phases{}

	for _, m := range families["ovnkube_node_cni_add_phase_duration_seconds"].GetMetric() {
		counts := map[float64]float64{sumKey: m.GetHistogram().GetSampleSum()}
		for _, b := range m.GetHistogram().GetBucket() {
			counts[b.GetUpperBound()] = float64(b.GetCumulativeCount())
		}

		out[m.GetLabel()[0].GetValue()] = counts
	}

	return out
}

// quantile computes Prometheus' histogram_quantile: it assumes an even distribution within a
// bucket.
func (p phases) quantile(phase string, before phases, q float64) time.Duration {
	counts := map[float64]float64{}
	for bound, n := range p[phase] {
		counts[bound] = n - before[phase][bound]
	}

	delete(counts, sumKey)

	var bounds []float64
	for b := range counts {
		bounds = append(bounds, b)
	}

	slices.Sort(bounds)
	rank := q * counts[bounds[len(bounds)-1]]

	low, below := 0.0, 0.0
	for _, b := range bounds {
		if counts[b] >= rank && counts[b] > below {
			if math.IsInf(b, 1) {
				return seconds(low)
			}

			return seconds(low + (b-low)*(rank-below)/(counts[b]-below))
		}

		low, below = b, counts[b]
	}

	return seconds(low)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func printPhases(t *testing.T, pods []*lab.Pod, before, after phases) {
	t.Helper()

	var took []time.Duration
	for _, p := range pods {
		took = append(took, p.Took)
	}

	slices.Sort(took)

	var out strings.Builder

	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "phase\tmean\tp50\tp99\n")

	for _, phase := range []string{"annotation", "wiring", "ovn_installed", "total"} {
		mean := seconds((after[phase][sumKey] - before[phase][sumKey]) / float64(len(pods)))
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\n", phase, mean.Round(100*time.Microsecond),
			after.quantile(phase, before, 0.5).Round(time.Millisecond), after.quantile(phase, before, 0.99).Round(time.Millisecond))
	}

	var sum time.Duration
	for _, d := range took {
		sum += d
	}

	fmt.Fprintf(w, "plugin\t%v\t%v\t%v\n", (sum / time.Duration(len(took))).Round(100*time.Microsecond),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))

	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}

	t.Log("\n" + out.String())
}
