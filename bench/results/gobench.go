package results

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// goLine is a line of a Go benchmark's output: its name, without the number of CPUs,
// how often it ran, and values with their units.
var goLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// ParseGo returns what `go test -bench` wrote of a package's benchmarks: for each the
// median over its runs. Output without a benchmark is an error.
func ParseGo(pkg, output string) ([]Measure, error) {
	var names []string
	samples := map[string]map[string][]float64{}
	for line := range strings.Lines(output) {
		m := goLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		name, fields := m[1], strings.Fields(m[2])
		if samples[name] == nil {
			names = append(names, name)
			samples[name] = map[string][]float64{}
		}
		for i := 0; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("parse benchmark %q: %w", name, err)
			}
			samples[name][fields[i+1]] = append(samples[name][fields[i+1]], value)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("parse benchmarks of %s: none", pkg)
	}
	var out []Measure
	for _, name := range names {
		m := Measure{Package: pkg, Name: strings.ReplaceAll(name, "_", " "), Values: map[string]float64{}, Spread: map[string]float64{}, Samples: samples[name]}
		for unit, values := range samples[name] {
			m.Values[unit], m.Spread[unit] = bench.Summarize(values)
		}
		out = append(out, m)
	}
	return out, nil
}
