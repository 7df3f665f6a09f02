package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// runs is what a loaded BPF program has done since the kernel counts it.
type runs struct{ count, instructions int }

// enableStats makes the kernel time BPF programs, in nanoseconds that are
// instructions here. The timing itself is then part of every measurement.
func enableStats() error {
	return os.WriteFile("/proc/sys/kernel/bpf_stats_enabled", []byte("1"), 0)
}

// programRuns returns the runs of each BPF program that this process has open, by
// its tag.
func programRuns() (map[string]runs, error) {
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return nil, err
	}
	all := map[string]runs{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // closed since
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		tag, ok := fields["prog_tag"]
		if !ok {
			continue
		}
		var r runs
		if _, err := fmt.Sscan(fields["run_cnt"]+" "+fields["run_time_ns"], &r.count, &r.instructions); err != nil {
			return nil, fmt.Errorf("parse runs of program %s: %w", tag, err)
		}
		all[tag] = r
	}
	return all, nil
}

// since returns the instructions per run of the programs that ran in between, by
// tag.
func since(before, after map[string]runs) map[string]int {
	cost := map[string]int{}
	for tag, a := range after {
		if n := a.count - before[tag].count; n > 0 {
			cost[tag] = (a.instructions - before[tag].instructions) / n
		}
	}
	return cost
}
