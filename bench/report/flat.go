package report

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// flatBar limits the growth of a test's cost from the smallest to the largest size. With a base,
// which includes the cost of the kernel's own tables, it limits the growth relative to that of the
// base.
type flatBar struct {
	of, test, variant, base string
	max                     float64
}

func flatBars() []flatBar {
	return []flatBar{
		{"connections", bench.HostUDPRR, bench.EBPF, bench.NoOVS, 1.05},
		{"connections", bench.NSUDPRR, bench.EBPF, bench.Helper, 1.05},
		{"connections", bench.NSUDPRR, bench.Shortcuts, "", 1.10},
		{"services", bench.HostUDPRR, bench.EBPF, "", 1.02},
		{"services", bench.NSUDPRR, bench.EBPF, "", 1.02},
		{"services", bench.NodePortLocal, bench.EBPF, "", 1.02},
		{"services", bench.ServiceTCPCRR, bench.EBPF, "", 1.02},
	}
}

// growth returns a variant's cost at the largest size divided by that at the smallest.
func growth(points []bench.Point, of, test, variant string) (ratio float64, sizes [2]int, ok bool) {
	var first, last *bench.Point
	for i, x := range points {
		if x.Of != of || x.Row.Test != test || x.Row.Variant != variant || x.Row.Family != bench.IPv4 {
			continue
		}
		if first == nil || x.Size < first.Size {
			first = &points[i]
		}
		if last == nil || x.Size > last.Size {
			last = &points[i]
		}
	}
	if first == nil || first.Size == last.Size || first.Row.Instructions <= 0 {
		return 0, sizes, false
	}
	return last.Row.Instructions / first.Row.Instructions, [2]int{first.Size, last.Size}, true
}

func (b flatBar) ratio(points []bench.Point) (ratio float64, sizes [2]int, ok bool) {
	ratio, sizes, ok = growth(points, b.of, b.test, b.variant)
	if !ok || b.base == "" {
		return ratio, sizes, ok
	}
	base, baseSizes, ok := growth(points, b.of, b.test, b.base)
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
		met := "met"
		if ratio > b.max {
			met = "**missed**"
		}
		fmt.Fprintf(&lines, "| %s | %s, %s %s as %s%s | ≤ %.2f | %s, %.3f |\n", b.test, b.variant, thousands(float64(sizes[1])), b.of, thousands(float64(sizes[0])), against, b.max, met, ratio)
	}
	if lines.Len() == 0 {
		return ""
	}
	return "| test | cost of | bar | |\n|---|---|---|---|\n" + lines.String()
}
