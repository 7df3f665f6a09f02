package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func row(variant string, instructions float64) bench.Row {
	return bench.Row{Test: bench.HostUDPRR, Variant: variant, Layout: "none", Kernel: "6.12.1", Family: bench.IPv4, Instructions: instructions, Spread: 0.002}
}

// accepted returns a baseline in a file, with rows in which ours costs 1.02.
func accepted(t *testing.T) *bench.Baseline {
	t.Helper()

	b := &bench.Baseline{Commit: "abc1234", Kernel: "6.12.1", Reason: "a start", Ratios: bench.Ratios([]bench.Row{row(bench.NoOVS, 10000), row(bench.Shortcuts, 10200)})}

	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "baseline.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}

	if _, err := bench.ReadBaseline(path + "x"); err == nil {
		t.Error("read a baseline that is not there")
	}

	if b, err = bench.ReadBaseline(path); err != nil {
		t.Fatal(err)
	}

	return b
}

// CI relies on this: a worse ratio fails, and so does a gate without its self-test.
func TestGateFile(t *testing.T) {
	b, rows := accepted(t), []bench.Row{row(bench.NoOVS, 10000), row(bench.Shortcuts, 10200)}
	if err := checkGate(b, rows, []bench.Row{row(bench.Planted, 10200*1.03)}); err != nil {
		t.Error(err)
	}

	if err := checkGate(nil, nil, nil); err != nil {
		t.Errorf("no gate asked for: %v", err)
	}

	for what, err := range map[string]error{
		"is 1.0404, was 1.0200": checkGate(b, []bench.Row{row(bench.NoOVS, 10000), row(bench.Shortcuts, 10404)}, []bench.Row{row(bench.Planted, 10404*1.03)}),
		"0 planted rows":        checkGate(b, rows, nil),
		"want 3 %":              checkGate(b, rows, []bench.Row{row(bench.Planted, 10200)}),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

// A random excess is forgiven once, a regression is not.
func TestRemeasure(t *testing.T) {
	b := accepted(t)

	for _, tt := range []struct {
		name                string
		first, second, base float64 // base: of the second run
		asked, passes       bool
	}{
		{"right at once", 10200, 0, 0, false, true},
		{"by chance", 10500, 10210, 10001, true, true},
		{"by chance, with a base that is slower, too", 10310, 10400, 10200, true, true},
		{"slower", 10500, 10510, 10001, true, false},
		{"slower, with a base that is slower, too", 10500, 10710, 10200, true, false},
	} {
		asked := false

		rows, err := remeasure([]bench.Row{row(bench.NoOVS, 10000), row(bench.Shortcuts, tt.first), row(bench.Planted, tt.first*1.03)}, bench.ShortBars(), b, func(variants []string) ([]bench.Row, error) {
			asked = true

			if !slices.Equal(variants, []string{bench.NoOVS, bench.Shortcuts}) {
				t.Errorf("%s: once more %v", tt.name, variants)
			}

			return []bench.Row{row(bench.NoOVS, tt.base), row(bench.Shortcuts, tt.second), row(bench.Planted, tt.second*1.03)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}

		rows, planted := separatePlanted(rows)
		if err := checkGate(b, rows, planted); asked != tt.asked || (err == nil) != tt.passes {
			t.Errorf("%s: asked %t, %v", tt.name, asked, err)
		}
	}
}

// The accepted baseline has the ratios of all bars that CI checks.
func TestBaselineFile(t *testing.T) {
	b, err := bench.ReadBaseline(filepath.Join("..", "baseline.json"))
	if err != nil {
		t.Fatal(err)
	}

	for _, bar := range bench.ShortBars() {
		if !slices.ContainsFunc(b.Ratios, func(r bench.Ratio) bool {
			return r.Test == bar.Test && r.Family == bar.Family && r.Variant == bar.Variant && r.Base == bar.Base && r.BaseTest == bar.BaseTest
		}) {
			t.Errorf("no ratio for %v in %s", bar, bar.Test)
		}
	}
}

// The harness has every test and flag of the sweeps.
func TestSweeps(t *testing.T) {
	for _, s := range sweeps() {
		for _, v := range s.variants {
			if !slices.Contains(bench.AllVariants(), v) {
				t.Errorf("no variant %q", v)
			}
		}

		for _, name := range s.tests {
			test, family, _ := strings.Cut(name, "/")
			if !slices.Contains(bench.Tests(), test) || (family != "" && family != bench.IPv4 && family != bench.IPv6) {
				t.Errorf("no test %q", name)
			}
		}

		if !slices.IsSorted(s.sizes) {
			t.Errorf("%s: sizes %v", s.of, s.sizes)
		}
	}
}

// All results are in the order of the numbers, and no more than the limit run at once.
func TestTogether(t *testing.T) {
	var running, most atomic.Int32

	met := make(chan struct{})

	results, err := together(t.Context(), 2, 10, func(ctx context.Context, i int) (int, error) {
		n := running.Add(1)
		defer running.Add(-1)

		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}

		switch i { // the first two meet
		case 0:
			select {
			case met <- struct{}{}:
			case <-time.After(10 * time.Second):
				return 0, errors.New("the second one does not run beside the first")
			}
		case 1:
			<-met
		}

		return i * i, nil
	})
	if err != nil || most.Load() != 2 {
		t.Errorf("%d at once, want 2: %v", most.Load(), err)
	}

	if diff := cmp.Diff([]int{0, 1, 4, 9, 16, 25, 36, 49, 64, 81}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// After an error the others end, and none begins.
func TestTogether_endsAtAnError(t *testing.T) {
	bad, begun := errors.New("bad"), 0

	_, err := together(t.Context(), 1, 10, func(_ context.Context, i int) (int, error) {
		begun++

		if i == 2 {
			return 0, bad
		}

		return 0, nil
	})
	if !errors.Is(err, bad) || begun != 3 {
		t.Errorf("%d begun, want 3: %v", begun, err)
	}

	if _, err := together(t.Context(), 2, 2, func(ctx context.Context, i int) (int, error) {
		if i == 0 {
			return 0, bad
		}

		<-ctx.Done()

		return 0, ctx.Err()
	}); !errors.Is(err, bad) {
		t.Errorf("one waits for the other's error: %v", err)
	}
}

func TestPointsOf(t *testing.T) {
	rows := make([]bench.Row, 6)
	for i := range rows {
		rows[i].Instructions = float64(i)
	}

	points, err := pointsOf("connections", []int{1, 100, 1000}, rows)
	if err != nil {
		t.Fatal(err)
	}

	for i, want := range []int{1, 1, 100, 100, 1000, 1000} {
		if points[i].Size != want || points[i].Row.Instructions != float64(i) {
			t.Errorf("point %d: %+v, want size %d", i, points[i], want)
		}
	}

	for _, n := range []int{0, 5} {
		if _, err := pointsOf("connections", []int{1, 100, 1000}, rows[:n]); err == nil {
			t.Errorf("%d rows at 3 sizes", n)
		}
	}
}

// The code that slows programs down is in no product: its file needs a build tag that only the
// harness has.
func TestProductIsNotSlow(t *testing.T) {
	files := func(args ...string) string {
		t.Helper()

		cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{.ImportPath}} {{.GoFiles}}"}, args...)...)
		cmd.Dir = filepath.Join("..", "..")

		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}

		return string(out)
	}

	const slow = " slow.go"
	if got := files("./cmd/ovnkube", "./cmd/ovn-k8s-cni-overlay"); strings.Contains(got, slow) {
		t.Error("the product has bpf/slow.go")
	}

	if got := files("-tags", "slow", "./bench/harness"); !strings.Contains(got, slow) {
		t.Error("the harness does not have bpf/slow.go: nothing can be planted")
	}
}
