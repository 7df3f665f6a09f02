package report

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// flatBar limits how the cost of a test grows with a number of connections or Services. It limits
// one of three ratios:
//
//   - without base and at: the cost at the largest size, divided by the cost at the smallest one
//   - with base: this ratio, divided by the same ratio of the variant base. A base has the cost of
//     the kernel's own tables, too.
//   - with base and at: the cost at the size at, divided by the cost of base at this size
type flatBar struct {
	of, test, variant string // of: "connections" or "services", as bench.Point.Of
	base              string // a variant; "": none
	max               float64
	upTo              int // larger sizes are not compared; 0: all are
	at                int // a size; 0: none
}

func flatBars() []flatBar {
	return []flatBar{
		{of: "connections", test: bench.HostUDPRR, variant: bench.EBPF, base: bench.NoOVS, max: 1.05},
		{of: "connections", test: bench.NSUDPRR, variant: bench.EBPF, base: bench.Helper, max: 1.05, upTo: 10000},
		{of: "connections", test: bench.NSUDPRR, variant: bench.Shortcuts, max: 1.10, upTo: 10000},
		// Fifteen times as many connections as the table of shortcuts has room for.
		{of: "connections", test: bench.NSUDPRR, variant: bench.Shortcuts, base: bench.EBPF, max: 1.10, at: 1000000},
		{of: "services", test: bench.HostUDPRR, variant: bench.EBPF, max: 1.02},
		{of: "services", test: bench.NSUDPRR, variant: bench.EBPF, max: 1.02},
		{of: "services", test: bench.NodePortLocal, variant: bench.EBPF, max: 1.02},
		{of: "services", test: bench.ServiceTCPCRR, variant: bench.EBPF, max: 1.02},
	}
}

// growth returns a variant's cost at the largest compared size divided by that at the smallest.
func (b flatBar) growth(points []bench.Point, variant string) (ratio float64, sizes [2]int, ok bool) {
	var first, last *bench.Point

	for i, point := range points {
		if !b.isOf(point, variant) || b.upTo != 0 && point.Size > b.upTo {
			continue
		}

		if first == nil || point.Size < first.Size {
			first = &points[i]
		}

		if last == nil || point.Size > last.Size {
			last = &points[i]
		}
	}

	if first == nil || first.Size == last.Size || first.Row.Instructions <= 0 {
		return 0, sizes, false
	}

	return last.Row.Instructions / first.Row.Instructions, [2]int{first.Size, last.Size}, true
}

// isOf reports whether a point belongs to the bar's test and to the variant.
func (b flatBar) isOf(point bench.Point, variant string) bool {
	return point.Of == b.of && point.Row.Test == b.test && point.Row.Variant == variant && point.Row.Family == bench.IPv4
}

// beside returns the cost at size b.at divided by that of the base.
func (b flatBar) beside(points []bench.Point) (ratio float64, ok bool) {
	costs := make(map[string]float64)

	for _, point := range points {
		for _, v := range []string{b.variant, b.base} {
			if point.Size == b.at && b.isOf(point, v) {
				costs[v] = point.Row.Instructions
			}
		}
	}

	if len(costs) < 2 || costs[b.base] <= 0 {
		return 0, false
	}

	return costs[b.variant] / costs[b.base], true
}

// ratio returns the limited ratio, and the sizes that it compares. ok is false if a point is
// missing.
func (b flatBar) ratio(points []bench.Point) (ratio float64, sizes [2]int, ok bool) {
	if b.at != 0 {
		ratio, ok = b.beside(points)
		return ratio, [2]int{b.at, b.at}, ok
	}

	ratio, sizes, ok = b.growth(points, b.variant)
	if !ok || b.base == "" {
		return ratio, sizes, ok
	}

	base, baseSizes, ok := b.growth(points, b.base)

	return ratio / base, sizes, ok && baseSizes == sizes
}

// Flat returns nil if all flat bars are met, or else the joined errors for missed bars and missing
// points.
func Flat(points []bench.Point) error {
	var errs []error

	for _, b := range flatBars() {
		switch ratio, _, ok := b.ratio(points); {
		case !ok:
			errs = append(errs, fmt.Errorf("%s of %s by number of %s: not measured", b.test, b.variant, b.of))
		case ratio > b.max:
			errs = append(errs, fmt.Errorf("%s of %s by number of %s: %.3f, the bar is %.2f", b.test, b.variant, b.of, ratio, b.max))
		}
	}

	return errors.Join(errs...)
}

// flatTable shows the bars, or "" without points for them.
func flatTable(points []bench.Point) string {
	var lines strings.Builder

	for _, b := range flatBars() {
		ratio, sizes, ok := b.ratio(points)
		if !ok {
			continue
		}

		against := ""
		if b.base != "" {
			against = ", beside the growth of " + b.base
		}

		of := fmt.Sprintf("%s, %s %s", b.variant, thousands(float64(sizes[1])), b.of)
		if b.at != 0 {
			of += ", beside " + b.base
		} else {
			of += " as " + thousands(float64(sizes[0])) + against
		}

		met := "met"
		if ratio > b.max {
			met = "**missed**"
		}

		fmt.Fprintf(&lines, "| %s | %s | ≤ %.2f | %s, %.3f |\n", b.test, of, b.max, met, ratio)
	}

	if lines.Len() == 0 {
		return ""
	}

	return "| test | cost of | bar | |\n|---|---|---|---|\n" + lines.String()
}
