package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Table returns rows as a Markdown table: a line a test and family, a column a
// variant, and at the end the bars of the line with what became of them. What was
// not measured is a dash. It ends with a newline.
func Table(rows []Row, bars []Bar) string {
	variants := slices.DeleteFunc(AllVariants(), func(v string) bool {
		return !slices.ContainsFunc(rows, func(r Row) bool { return r.Variant == v })
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| test | %s | bar |\n", strings.Join(variants, " | "))
	fmt.Fprintf(&b, "|---|%s---|\n", strings.Repeat("---:|", len(variants)))
	for _, test := range Tests() {
		for _, family := range []string{IPv4, IPv6} {
			if line := tableLine(rows, bars, variants, test, family); line != "" {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// tableLine returns one line, or nothing if no variant has the test.
func tableLine(rows []Row, bars []Bar, variants []string, test, family string) string {
	var cells []string
	measured := false
	for _, v := range variants {
		r, ok := find(rows, v, test, family)
		if !ok {
			cells = append(cells, "–")
			continue
		}
		measured = true
		cells = append(cells, fmt.Sprintf("%.0f ± %.1f %%", r.Instructions, 100*r.Spread))
	}
	if !measured {
		return ""
	}
	var verdicts []string
	for _, bar := range bars {
		if bar.Test != test || bar.Family != family {
			continue
		}
		verdicts = append(verdicts, verdict(rows, bar))
	}
	name := test
	if family == IPv6 {
		name += " (IPv6)"
	}
	return fmt.Sprintf("| %s | %s | %s |\n", name, strings.Join(cells, " | "), strings.Join(verdicts, ", "))
}

func verdict(rows []Row, bar Bar) string {
	limit := fmt.Sprintf("%s ≤ %.2f × %s", bar.Variant, bar.Max, bar.Base)
	if bar.BaseTest != "" {
		limit += " in " + bar.BaseTest
	}
	ratio, ok := bar.Ratio(rows)
	switch {
	case !ok:
		return limit + ": not measured"
	case ratio > bar.Max:
		return fmt.Sprintf("%s: **missed, %.3f**", limit, ratio)
	}
	return fmt.Sprintf("%s: met, %.3f", limit, ratio)
}
