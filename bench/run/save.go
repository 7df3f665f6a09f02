package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// save writes the run and its report.
func save(c config, r *results.Run) error {
	if err := saveReport(c.out, r, "report.md"); err != nil {
		return err
	}

	if c.keep {
		return r.Keep()
	}

	return nil
}

// saveReport writes the run and its report under that name.
func saveReport(dir string, r *results.Run, name string) error {
	if err := r.Write(filepath.Join(dir, r.Kind+".txt")); err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(dir, name), []byte(report.Page(report.Runs{r.Kind: r})), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}

	return nil
}

// documents writes the documents about the runs: docs/benchmarks.md and the figures in prose.
func documents() error {
	newest, err := results.Newest(os.DirFS("bench/results"))
	if err != nil {
		return err
	}

	texts, err := report.Documents(newest, func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	})
	if err != nil {
		return err
	}

	for path, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}

	return nil
}
