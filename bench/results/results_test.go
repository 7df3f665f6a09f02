package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func sample() *Run {
	row := bench.Row{Test: bench.HostUDPRR, Variant: bench.EBPF, Layout: "direct", Kernel: "6.12.1", Family: bench.IPv4, Instructions: 17000.5, Spread: 0.01}
	other := row
	other.Variant = bench.NoOVS

	return &Run{
		Kind: Full, Date: "2026-11-22T07:00:00Z", Commit: "abc1234", Seed: 7, Boots: 3, Platform: Platform,
		Machine:  Machine{CPU: "some CPU", Cores: 2, Memory: 1024, Kernel: "Linux 6.18"},
		Versions: "go 1.26",
		Rows:     []bench.Row{row, other}, Sweeps: []bench.Point{{Of: "services", Size: 10, Row: row}},
		Measures: []Measure{{
			Package: "bpf", Name: "Programs/empty run", Values: map[string]float64{"ns/op": 12, "B/op": 3}, Spread: map[string]float64{"ns/op": 0.25, "B/op": 0},
			Samples: map[string][]float64{"ns/op": {9, 12, 15}, "B/op": {3, 3, 3}},
		}},
		Samples: map[string][]float64{sampleKey(row): {17000, 17000.5, 17001}, sampleKey(other): {17000.5, 17000.5, 17000.5}},
	}
}

func TestRoundTrip(t *testing.T) {
	full := sample()
	rows, sweeps, measures := *full, *full, *full
	rows.Sweeps, rows.Measures, rows.Samples = nil, nil, nil
	sweeps.Rows, sweeps.Measures, sweeps.Samples = nil, nil, nil

	measures.Rows, measures.Sweeps, measures.Samples = nil, nil, nil
	for _, r := range []*Run{full, &rows, &sweeps, &measures} {
		path := filepath.Join(t.TempDir(), "new", r.Name())
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}

		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("a run changed (-wrote +read):\n%s", diff)
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Run){
		"kind":    func(r *Run) { r.Kind = "other" },
		"date":    func(r *Run) { r.Date = "" },
		"commit":  func(r *Run) { r.Commit = "" },
		"machine": func(r *Run) { r.Machine.CPU = "" },
		"nothing": func(r *Run) { r.Rows, r.Sweeps, r.Measures = nil, nil, nil },
	} {
		r := sample()
		spoil(r)

		if _, err := r.Encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}

	for _, text := range []string{"", "{}", "PASS\n", "kind: packets\nBenchmarkX 1 5 ns/op\nPASS\n"} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("decoded %q", text)
		}
	}
}

func TestNewest(t *testing.T) {
	dir := fstest.MapFS{}

	for i, r := range []*Run{sample(), sample(), sample(), sample(), sample()} {
		r.Date = []string{"2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-21T00:00:00Z", "2026-01-01T00:00:00Z", "2026-11-23T00:00:00Z"}[i]

		r.Seed = i
		switch i {
		case 0:
			r.Platform = "" // of before there were platforms
		case 3:
			r.Kind = Native
		case 4:
			r.Platform = "debian12"
		}

		text, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}

		dir[r.Name()] = &fstest.MapFile{Data: text}
	}

	newest, err := Newest(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(newest) != 3 || newest[Full].Seed != 1 || newest[Native].Seed != 3 || newest[Full+"-debian12"].Seed != 4 {
		t.Errorf("newest: %+v", newest)
	}

	dir["packets-bad.txt"] = &fstest.MapFile{Data: []byte("{}")}
	if _, err := Newest(dir); err == nil {
		t.Error("a broken file went unnoticed")
	}
}

// The files in this directory can be read and have the right names.
func TestKept(t *testing.T) {
	if _, err := Newest(os.DirFS(".")); err != nil {
		t.Fatal(err)
	}

	paths, err := filepath.Glob("*.txt")
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range paths {
		r, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}

		if r.Name() != path || strings.Contains(r.Commit, "dirty") {
			t.Errorf("%s: should be named %s, of a commit", path, r.Name())
		}
	}
}
