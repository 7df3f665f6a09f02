package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table returns rows as a Markdown table, which ends with a newline. It has a line for each test
// and family, and a column for each variant. The last column has the bars of the line, and whether
// they are met. A dash is a row that was not measured.
func Table(rows []Row, bars []Bar) string { return TableOf(Tests(), rows, bars) }

// TableOf is like Table, with only the given tests. Without bars, it has no column for them.
// Instead, each cell also has the ratio to the first cell of its line.
func TableOf(tests []string, rows []Row, bars []Bar) string {
	return grid(tests, rows, bars, func(r Row, first float64) string {
		cell := fmt.Sprintf("%.0f ± %.1f %%", r.Instructions, 100*r.Spread)
		if first != 0 && bars == nil {
			cell += fmt.Sprintf(", %.3f", r.Instructions/first)
		}

		return cell
	})
}

// Beside returns the rows that others has, too, as a Markdown table. Each cell has the instructions
// of the row, and those of the same row in others divided by them.
func Beside(rows, others []Row) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		_, ok := Find(others, r.Variant, r.Test, r.Family)
		return !ok
	})

	return grid(Tests(), rows, nil, func(r Row, _ float64) string {
		other, _ := Find(others, r.Variant, r.Test, r.Family)
		return fmt.Sprintf("%.0f, %.3f", r.Instructions, other.Instructions/r.Instructions)
	})
}

// grid returns a table with a column for each variant in rows. cell formats a row; first is the
// count in the line's first cell, or 0 in that cell itself.
func grid(tests []string, rows []Row, bars []Bar, cell func(r Row, first float64) string) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !slices.Contains(tests, r.Test) })
	variants := slices.DeleteFunc(AllVariants(), func(v string) bool {
		return !slices.ContainsFunc(rows, func(r Row) bool { return r.Variant == v })
	})

	var b strings.Builder

	last, rule := "", ""
	if bars != nil {
		last, rule = " bar |", "---|"
	}

	fmt.Fprintf(&b, "| test | %s |%s\n", strings.Join(variants, " | "), last)
	fmt.Fprintf(&b, "|---|%s%s\n", strings.Repeat("---:|", len(variants)), rule)

	for _, test := range tests {
		for _, family := range []string{IPv4, IPv6} {
			b.WriteString(tableLine(rows, bars, variants, test, family, cell))
		}
	}

	return b.String()
}

// tableLine returns one line, or nothing if no variant has the test.
func tableLine(rows []Row, bars []Bar, variants []string, test, family string, format func(Row, float64) string) string {
	var cells []string

	measured, first := false, 0.0

	for _, v := range variants {
		r, ok := Find(rows, v, test, family)
		if !ok {
			cells = append(cells, "–")
			continue
		}

		measured = true

		cells = append(cells, format(r, first))
		first = cmp.Or(first, r.Instructions)
	}

	if !measured {
		return ""
	}

	name := test
	if family == IPv6 {
		name += " (IPv6)"
	}

	line := fmt.Sprintf("| %s | %s |", name, strings.Join(cells, " | "))
	if bars == nil {
		return line + "\n"
	}

	var verdicts []string

	for _, bar := range bars {
		if bar.Test != test || bar.Family != family {
			continue
		}

		verdicts = append(verdicts, verdict(rows, bar))
	}

	return fmt.Sprintf("%s %s |\n", line, strings.Join(verdicts, ", "))
}

// verdict describes whether the rows meet the bar.
func verdict(rows []Row, bar Bar) string {
	ratio, ok := bar.Ratio(rows)
	if !ok {
		return bar.String() + ": not measured"
	}

	return bar.String() + ": " + bar.Verdict(ratio)
}

// String returns the bar as text, with the ratio that is wanted.
func (b Bar) String() string {
	text := fmt.Sprintf("%s ≤ %s × %s", b.Variant, formatMax(b.want()), b.Base)
	if b.BaseTest != "" {
		text += " in " + b.BaseTest
	}

	return text
}

// Verdict describes whether the ratio meets the bar, and where the gate is if it does not
// have to.
func (b Bar) Verdict(ratio float64) string {
	figure := fmt.Sprintf("%.*f", decimals(b.want())+1, ratio)
	switch {
	case ratio <= b.want():
		return "met, " + figure
	case b.want() != b.Max:
		return fmt.Sprintf("**missed, %s** (the gate is at %s)", figure, formatMax(b.Max))
	}

	return fmt.Sprintf("**missed, %s**", figure)
}
