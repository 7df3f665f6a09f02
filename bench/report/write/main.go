// Command write makes the documents that show the benchmarks' runs: docs/benchmarks.md
// with its charts, the table of the README and the figures in prose. It must be
// started at the top of the repository, as `make bench-documents` does.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "write documents:", err)
		os.Exit(1)
	}
}

func run() error {
	newest, err := results.Newest(os.DirFS("bench/results"))
	if err != nil {
		return err
	}
	documents, err := report.Documents(newest, func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	})
	if err != nil {
		return err
	}
	old, err := filepath.Glob(report.ChartsPath + "/*.svg")
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := documents[path]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(report.ChartsPath, 0o755); err != nil {
		return err
	}
	for path, text := range documents {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
