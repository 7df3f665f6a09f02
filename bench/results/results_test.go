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
	return &Run{
		Kind: Full, Date: "2026-11-22T07:00:00Z", Commit: "abc1234", Seed: 7, Boots: 3,
		Machine:  Machine{CPU: "some CPU", Cores: 2, Memory: 1024, Kernel: "Linux 6.18"},
		Versions: map[string]string{"go": "go1.26"},
		Rows:     []bench.Row{row, row}, Sweeps: []Point{{Of: "services", Size: 10, Row: row}},
		Measures: []Measure{{Package: "bpf", Name: "Programs/empty", Values: map[string]float64{"ns/op": 12}}},
	}
}

func TestRoundTrip(t *testing.T) {
	full := sample()
	rows, sweeps, measures := *full, *full, *full
	rows.Sweeps, rows.Measures = nil, nil
	sweeps.Rows, sweeps.Measures = nil, nil
	measures.Rows, measures.Sweeps = nil, nil
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

// TestRowsKeepTheirShape holds that a reader of build/bench.json reads the rows.
func TestRowsKeepTheirShape(t *testing.T) {
	r := sample()
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `"rows": `)
	array, _, _ := strings.Cut(rest, "\n  ]")
	rows, err := bench.Read(strings.NewReader(array + "]"))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(r.Rows, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
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
	for _, text := range []string{"", "{}", `{"kind":"packets","surprise":1}`} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("decoded %q", text)
		}
	}
}

func TestNewest(t *testing.T) {
	dir := fstest.MapFS{}
	for i, r := range []*Run{sample(), sample(), sample(), sample()} {
		r.Date = []string{"2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-21T00:00:00Z", "2026-01-01T00:00:00Z"}[i]
		r.Seed = i
		if i == 3 {
			r.Kind = Native
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
	if len(newest) != 2 || newest[Full].Seed != 1 || newest[Native].Seed != 3 {
		t.Errorf("newest: %+v", newest)
	}
	dir["packets-bad.json"] = &fstest.MapFile{Data: []byte("{}")}
	if _, err := Newest(dir); err == nil {
		t.Error("a broken file went unnoticed")
	}
}

// TestKept holds that what lies in this directory can be read, under its name.
func TestKept(t *testing.T) {
	if _, err := Newest(os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("*.json")
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
