package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// directory is where a run goes whose rows go to a file.
func directory(rows string) string { return strings.TrimSuffix(rows, ".json") }

// save writes the rows, the run, and the report of it.
func save(c config, r *results.Run) error {
	var buf bytes.Buffer
	if err := bench.Write(&buf, r.Rows); err != nil {
		return err
	}
	dir := directory(c.out)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(c.out, buf.Bytes(), 0o644)); err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	if err := saveReport(dir, r, "report.md"); err != nil {
		return err
	}
	if c.keep {
		return r.Keep()
	}
	return nil
}

// saveReport writes the run and a report of it alone, under that name.
func saveReport(dir string, r *results.Run, name string) error {
	if err := r.Write(filepath.Join(dir, r.Kind+".json")); err != nil {
		return err
	}
	page := report.Page(report.Runs{r.Kind: r}, ".")
	err := os.WriteFile(filepath.Join(dir, name), []byte(page.Page), 0o644)
	for name, svg := range page.Charts {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644))
	}
	if err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return nil
}
