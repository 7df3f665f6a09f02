package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// full shows a run of kind results.Full: other kernels, and costs that depend on a number of
// connections or Services.
func (p *page) full(r *results.Run) {
	p.put("\n## Other kernels, many connections, many Services\n\n`make bench KIND=full`.\n")
	p.provenance(r)

	var kernels []string
	for _, row := range r.Rows {
		if !slices.Contains(kernels, row.Kernel) {
			kernels = append(kernels, row.Kernel)
		}
	}

	for _, k := range kernels {
		p.put("\n### Linux %s\n", k)

		if !strings.HasPrefix(k, Kernel) {
			p.put("\nThe bars are meant for Linux %s. Why an older one has the host pay for OVS: [profile.md](profile.md).\n", Kernel)
		}

		p.put("\n%s", bench.Table(bench.OnKernel(r.Rows, k), bench.Bars()))
	}

	if table := flatTable(r.Sweeps); table != "" {
		p.put("\n### What must not grow\n\n%s", table)
	}

	for _, of := range []string{"connections", "services"} {
		p.sweep(of, r.Sweeps)
	}
}

// sweep shows the tests at several sizes.
func (p *page) sweep(of string, points []bench.Point) {
	byTest := map[string][]bench.Point{}

	for _, point := range points {
		if point.Of == of {
			name := testName(point.Row.Test, point.Row.Family)
			byTest[name] = append(byTest[name], point)
		}
	}

	for _, test := range slices.Sorted(maps.Keys(byTest)) {
		lines := linesOf(byTest[test])
		title := fmt.Sprintf("%s by number of %s", test, of)
		p.put("\n### %s\n\n%s", title, sweepTable(of, lines))
	}
}

// line holds a variant's instructions (y) by size (x).
type line struct {
	variant string
	x, y    []float64
}

// linesOf returns a line for each variant that has points, in the order of display.
func linesOf(points []bench.Point) []line {
	var lines []line

	for _, v := range bench.AllVariants() {
		l := line{variant: v}
		for _, point := range points {
			if point.Row.Variant == v {
				l.x = append(l.x, float64(point.Size))
				l.y = append(l.y, point.Row.Instructions)
			}
		}

		if len(l.x) > 0 {
			lines = append(lines, l)
		}
	}

	return lines
}

// sweepTable returns a table with a line per size. Its last line is the ratio of the largest to the
// smallest.
func sweepTable(of string, lines []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", of)

	for _, l := range lines {
		fmt.Fprintf(&b, " %s |", l.variant)
	}

	fmt.Fprintf(&b, "\n|---:|%s\n", strings.Repeat("---:|", len(lines)))

	for i, size := range lines[0].x {
		fmt.Fprintf(&b, "| %s |", thousands(size))

		for _, l := range lines {
			cell := "–"
			if i < len(l.x) && l.x[i] == size {
				cell = fmt.Sprintf("%.0f", l.y[i])
			}

			fmt.Fprintf(&b, " %s |", cell)
		}

		b.WriteString("\n")
	}

	b.WriteString("| **last / first** |")

	for _, l := range lines {
		fmt.Fprintf(&b, " **%.3f** |", l.y[len(l.y)-1]/l.y[0])
	}

	return b.String() + "\n"
}
