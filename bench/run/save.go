package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// write writes the run to path, and with keep also to bench/results.
func write(r *results.Run, path string, keep bool) error {
	err := r.Write(path)
	if err == nil && keep {
		err = r.Keep()
	}

	return err
}

// save writes the run to the directory of results, and its report to the file name there.
func save(c config, r *results.Run, name string) error {
	if err := write(r, filepath.Join(c.out, r.Kind+".txt"), c.keep); err != nil {
		return err
	}

	page := report.Page(report.Runs{r.Kind: r})
	if err := os.WriteFile(filepath.Join(c.out, name), []byte(page), 0o644); err != nil {
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
