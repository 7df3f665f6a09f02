package lab

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// StopProcess ends a process of the lab by its name in Status: with SIGTERM, followed by SIGKILL
// after ten seconds, or at once with SIGKILL. StartProcess restarts it.
func (l *Lab) StopProcess(name string, kill bool) error {
	record, err := l.find(name)
	if err != nil {
		return fmt.Errorf("stop process: %w", err)
	}

	p, err := process.Load(record)
	if err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}

	grace := 10 * time.Second
	if kill {
		grace = 0
	}

	if !p.Alive() {
		return fmt.Errorf("stop %s: it does not run", name)
	}

	if err := p.Stop(grace); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}

	return nil
}

// StartProcess restarts a process of the lab with the same arguments.
func (l *Lab) StartProcess(name string) error {
	record, err := l.find(name)
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}

	if _, err := process.Again(record); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}

	return nil
}

// find returns the record of the process.
func (l *Lab) find(name string) (string, error) {
	var names []string

	for _, dir := range []string{"pid", "kube"} {
		records, err := filepath.Glob(filepath.Join(l.path(dir), "*.pid"))
		if err != nil {
			return "", err
		}

		for _, r := range records {
			known := strings.TrimSuffix(filepath.Base(r), ".pid")
			if known == name {
				return r, nil
			}

			names = append(names, known)
		}
	}

	slices.Sort(names)

	return "", fmt.Errorf("no %q; there are %s", name, strings.Join(names, ", "))
}
