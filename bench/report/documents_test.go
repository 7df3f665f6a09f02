package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

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
