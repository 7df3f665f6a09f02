package report

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// Each ratio that README shows has a bar, and the gate measures it. Figures of this project are of
// the settings that a user gets by default.
func TestREADME_showsWhatTheGateMeasures(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", ReadmePath))
	if err != nil {
		t.Fatal(err)
	}

	shown := 0

	for line := range strings.Lines(string(text)) {
		marks := figure.FindAllStringSubmatch(line, -1)
		for _, mark := range marks {
			shown++

			checkShown(t, mark[1])
		}

		if len(marks) == 0 && ratioCell.MatchString(line) {
			t.Errorf("README has a typed ratio: %s", line)
		}
	}

	if shown == 0 {
		t.Error("README shows no figure: are its marks still found?")
	}
}

// ratioCell matches a table row whose last cell is a number.
var ratioCell = regexp.MustCompile(`^\|.*\|[ *]*[0-9]+[.,]?[0-9]*[ *]*\|\s*$`)

// checkShown checks a figure of README.
func checkShown(t *testing.T, what string) {
	t.Helper()

	words := strings.Fields(what)

	family := bench.IPv4
	if len(words) == 3 {
		family = words[2]
	}

	variant, base, isRatio := strings.Cut(words[0], "/")
	if !isRatio || len(words) < 2 {
		t.Errorf("README shows %q: want a ratio, which the gate can limit", what)
		return
	}

	if !slices.ContainsFunc(bench.ShortBars(), func(b bench.Bar) bool {
		return b.Variant == variant && b.Base == base && b.Test == words[1] && b.Family == family && b.BaseTest == ""
	}) {
		t.Errorf("README shows %q, which has no bar that make bench-gate checks: add one to bench/gate.go, and the row to bench/row.go", what)
	}
}

// The documents match the runs in bench/results: no figure is typed.
func TestDocuments(t *testing.T) {
	top := filepath.Join("..", "..")

	newest, err := results.Newest(os.DirFS(filepath.Join(top, "bench", "results")))
	if err != nil {
		t.Fatal(err)
	}

	documents, err := Documents(newest, func(path string) (string, error) {
		text, err := os.ReadFile(filepath.Join(top, path))
		return string(text), err
	})
	if err != nil {
		t.Fatal(err)
	}

	for path, want := range documents {
		got, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Error(err)
		}

		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what bench/results makes of it: make bench-documents (-want +got):\n%s", path, diff)
		}
	}
}
