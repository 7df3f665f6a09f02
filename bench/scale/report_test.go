package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadResults holds that several runs make one page: the last is what the others are
// added to, and no size is shown twice.
func TestReadResults(t *testing.T) {
	sized := func(nodes int, commit string, restart float64, pods ...int) *result {
		r := &result{Machine: machine{Commit: commit, OVN: "ovn-northd 25.03.0"}, Platform: "debian13", Nodes: nodes, Main: 10000}
		for _, n := range pods {
			r.Sizes = append(r.Sizes, size{Pods: n, Restart: takeover{Seconds: restart}, Sync: phase{Seconds: 1, CPU: map[string]float64{"controller": 1, "northd": 10}}})
		}

		return r
	}
	other := sized(100, "e", 5, 3000) // on another platform, with a real node
	other.Platform, other.Machine.OVN = "debian12", "ovn-northd 23.03.1"
	other.Sizes[0].Node = &onNode{Flows: 1234}

	var paths []string

	for i, r := range []*result{
		other, sized(10, "a", 1, 3000), sized(100, "b", 2, 1000, 3000), sized(100, "c", 3, 10000), sized(100, "d", 4, 1000, 3000, 30000),
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}

		paths = append(paths, filepath.Join(t.TempDir(), string(rune('0'+i))))
		if err := os.WriteFile(paths[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	r, err := readResults(paths)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, s := range r.Sizes {
		got = append(got, fmt.Sprintf("%d/%.0f", s.Pods, s.Restart.Seconds))
	}

	if text := strings.Join(got, " "); text != "1000/4 3000/4 10000/3 30000/4" {
		t.Errorf("sizes and where they are from: %s", text)
	}

	if r.Machine.Commit != "d, c, a, e" || len(r.beside) != 2 || r.beside[0].Nodes != 10 {
		t.Errorf("commits %s, %d runs beside", r.Machine.Commit, len(r.beside))
	}

	text := document(r)
	if n := strings.Count(text, "\n| 30000 | 1.0 s |"); n != 1 {
		t.Errorf("30,000 pods are shown %d times:\n%s", n, text)
	}

	sides := regexp.MustCompile(`(?m)^\| (\d+ \| \d+\.\d+\.\d+ \| \d+) \|`)

	got = nil
	for _, m := range sides.FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}

	want := []string{"10 | 25.03.0 | 3000", "100 | 23.03.1 | 3000", "100 | 25.03.0 | 3000", "100 | 23.03.1 | 1234"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by number of nodes, platforms side by side, then real nodes (-want +got):\n%s", diff)
	}
}

// TestDocument holds that docs/scale.md is what the kept runs make of it: no figure is typed.
func TestDocument(t *testing.T) {
	top := filepath.Join("..", "..")

	paths, err := filepath.Glob(filepath.Join(top, "bench", "results", "scale", "*.json"))
	if err != nil {
		t.Fatal(err)
	}

	const about = "debian13-100.json" // as in the Makefile: the last is what the page is about

	paths = append(slices.DeleteFunc(paths, func(p string) bool { return filepath.Base(p) == about }),
		filepath.Join(top, "bench", "results", "scale", about))

	r, err := readResults(paths)
	if err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(filepath.Join(top, "docs", "scale.md"))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(document(r), string(got)); diff != "" {
		t.Errorf("docs/scale.md is not what bench/results/scale makes of it: make bench-documents (-want +got):\n%s", diff)
	}
}
