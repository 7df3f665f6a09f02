package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// native shows a run of kind results.Native: Go benchmarks on a machine.
func (p *page) native(r *results.Run) {
	p.put("\n## Natively\n\n`make bench KIND=native`: times on this machine, which repeat less well than instructions do; ± is the distance of the quartiles of the runs.\n")
	p.provenance(r)

	last := ""
	for _, m := range r.Measures {
		if m.Package != last {
			last = m.Package
			p.put("\n### %s\n\n| benchmark | |\n|---|---|\n", m.Package)
		}

		var values []string
		for _, unit := range slices.Sorted(maps.Keys(m.Values)) {
			values = append(values, fmt.Sprintf("%s %s ± %.0f %%", significant(m.Values[unit]), unit, 100*m.Spread[unit]))
		}

		p.put("| %s | %s |\n", m.Name, strings.Join(values, ", "))
	}
}

// significant formats a number with three significant digits.
func significant(x float64) string {
	switch {
	case x >= 100:
		return thousands(x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	case x >= 1:
		return fmt.Sprintf("%.2f", x)
	}

	return fmt.Sprintf("%.3g", x)
}
