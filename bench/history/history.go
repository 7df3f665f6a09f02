package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// Value is what a run says of one thing: the median, how far its quartiles are apart as
// a fraction of it, and what it is the median of, if that was kept.
type Value struct {
	Median, Spread float64
	Samples        []float64
}

// Change is one thing in two runs.
type Change struct {
	What, Unit string
	Old, New   Value
	// Real tells that the runs differ by more than they would by chance.
	Real bool
	Why  string // the test that says so
}

// Ratio is the new median in terms of the old one.
func (c Change) Ratio() float64 { return c.New.Median / c.Old.Median }

const (
	significance = 0.05
	enough       = 4 // samples, for a rank test to find anything at all at 5 %
)

// judge decides whether the difference is real: by the rank test of Mann and Whitney
// where both runs kept samples enough, as benchstat does, else by the rule of the gate.
func (c *Change) judge() {
	if len(c.Old.Samples) < enough || len(c.New.Samples) < enough {
		limit := bench.Noise(max(c.Old.Spread, c.New.Spread))
		c.Real = c.Ratio() > 1+limit || c.Ratio() < 1/(1+limit)
		c.Why = fmt.Sprintf("more than %.1f %%", 100*limit)
		return
	}
	got, err := stats.MannWhitneyUTest(c.Old.Samples, c.New.Samples, stats.LocationDiffers)
	if err != nil { // all are equal
		c.Real, c.Why = false, err.Error()
		return
	}
	c.Real, c.Why = got.P < significance, fmt.Sprintf("p=%.3f n=%d+%d", got.P, got.N1, got.N2)
}

// Compare returns what both runs measured, in the order of the newer. Runs of different
// kinds, or of machines whose times have nothing to do with each other, are an error.
func Compare(before, after *results.Run) ([]Change, error) {
	if before.Kind != after.Kind {
		return nil, fmt.Errorf("compare runs: one is of kind %s, the other %s", before.Kind, after.Kind)
	}
	if before.Kind == results.Native && before.Machine.CPU != after.Machine.CPU {
		return nil, fmt.Errorf("compare runs: one is of a machine with %s, the other %s", before.Machine.CPU, after.Machine.CPU)
	}
	have := map[[2]string]Value{}
	for _, x := range values(before) {
		have[[2]string{x.What, x.Unit}] = x.New
	}
	var changes []Change
	for _, x := range values(after) {
		var ok bool
		if x.Old, ok = have[[2]string{x.What, x.Unit}]; ok && x.Old.Median > 0 && x.New.Median > 0 {
			x.judge()
			changes = append(changes, x)
		}
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("compare runs of %s and %s: they have nothing in common", before.Date, after.Date)
	}
	return changes, nil
}

// values are those of one run, as new ones.
func values(r *results.Run) []Change {
	var out []Change
	row := func(x bench.Row, of string) {
		what := fmt.Sprintf("%s, %s %s%s, Linux %s", x.Variant, x.Test, x.Family, of, release(x.Kernel))
		out = append(out, Change{What: what, Unit: "instructions", New: Value{x.Instructions, x.Spread, r.Samples[x.Kernel+" "+x.Key()]}})
	}
	for _, x := range r.Rows {
		row(x, "")
	}
	for _, x := range r.Sweeps {
		row(x.Row, fmt.Sprintf(", %d %s", x.Size, x.Of))
	}
	for _, m := range r.Measures {
		for _, unit := range slices.Sorted(maps.Keys(m.Values)) {
			out = append(out, Change{What: m.Package + " " + m.Name, Unit: unit, New: Value{m.Values[unit], m.Spread[unit], m.Samples[unit]}})
		}
	}
	return out
}

// release is a kernel without what a distribution's update changes.
func release(kernel string) string {
	parts := strings.SplitN(kernel, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Table shows changes as benchstat does: ~ where there is none.
func Table(before, after *results.Run, changes []Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s (%s) and %s (%s)\n\n", after.Kind, before.Commit, before.Date, after.Commit, after.Date)
	fmt.Fprintf(&b, "| what | unit | before | after | change | |\n|---|---|---:|---:|---:|---|\n")
	differ := 0
	for _, c := range changes {
		delta := "~"
		if c.Real {
			differ++
			delta = fmt.Sprintf("%+.1f %%", 100*(c.Ratio()-1))
		}
		fmt.Fprintf(&b, "| %s | %s | %.5g ± %.1f %% | %.5g ± %.1f %% | %s | %s |\n",
			c.What, c.Unit, c.Old.Median, 100*c.Old.Spread, c.New.Median, 100*c.New.Spread, delta, c.Why)
	}
	fmt.Fprintf(&b, "\n%d of %d differ.\n", differ, len(changes))
	return b.String()
}
