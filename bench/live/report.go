package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report returns the rows as Markdown, those of a test together.
func Report(rows []Row) string {
	var b strings.Builder
	b.WriteString("| test | backend | result | packets/s here | CPU/packet here | CPU/packet there |\n|---|---|---:|---:|---:|---:|\n")

	for _, test := range Tests() {
		for _, r := range rows {
			if r.Test == test {
				fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %.0f ns | %.0f ns |\n", test, r.Backend, r.result(), float64(r.Here.Packets)/r.Seconds, r.Here.PerPacket(), r.There.PerPacket())
			}
		}
	}

	return b.String() + compare(rows)
}

// result formats the main figures of a test.
func (r Row) result() string {
	if r.Bytes > 0 {
		return fmt.Sprintf("%.0f Mbit/s", float64(r.Bytes)*8/1e6/r.Seconds)
	}

	text := fmt.Sprintf("%.0f/s, p50 %.0f µs, p99 %.0f µs", float64(r.Operations)/r.Seconds, r.P50, r.P99)
	if r.Lost > 0 {
		text += fmt.Sprintf(", %d lost", r.Lost)
	}

	return text
}

// compare returns what each backend costs relative to the first, "" if there is only one.
func compare(rows []Row) string {
	var backends []string
	for _, r := range rows {
		if !slices.Contains(backends, r.Backend) {
			backends = append(backends, r.Backend)
		}
	}

	if len(backends) < 2 {
		return ""
	}

	var b strings.Builder
	fmt.Fprintf(&b, "\nCPU per packet at this end, median of the rounds, in terms of %s:\n\n| test | %s |\n|---|%s\n", backends[0], strings.Join(backends[1:], " | "), strings.Repeat("---:|", len(backends)-1))

	for _, test := range Tests() {
		fmt.Fprintf(&b, "| %s |", test)

		first := median(rows, test, backends[0])
		for _, name := range backends[1:] {
			cell := "–"
			if other := median(rows, test, name); first > 0 && other > 0 {
				cell = fmt.Sprintf("%.2f", other/first)
			}

			fmt.Fprintf(&b, " %s |", cell)
		}

		b.WriteString("\n")
	}

	return b.String()
}

// median returns the median CPU time per packet at this end, or 0 without rows.
func median(rows []Row, test, backend string) float64 {
	var costs []float64

	for _, r := range rows {
		if r.Test == test && r.Backend == backend {
			costs = append(costs, r.Here.PerPacket())
		}
	}

	if len(costs) == 0 {
		return 0
	}

	slices.Sort(costs)

	return costs[len(costs)/2]
}

// Rounds measures each backend in turn and back again, for this number of rounds, and always
// returns to the first one. switchTo must return only when the backend carries the traffic.
func Rounds(ctx context.Context, o Options, backends []string, rounds int, switchTo func(context.Context, string) error) ([]Row, error) {
	return inRounds(ctx, func(ctx context.Context) ([]Row, error) { return Measure(ctx, o) }, backends, rounds, switchTo)
}

// inRounds is Rounds with any measurement, for tests.
func inRounds(ctx context.Context, measure func(context.Context) ([]Row, error), backends []string, rounds int, switchTo func(context.Context, string) error) (rows []Row, err error) {
	if len(backends) == 0 || rounds < 1 {
		return nil, errors.New("measure: no backend, or no round")
	}

	current := backends[0]
	defer func() {
		if current == backends[0] {
			return
		}
		// Also when ctx has ended: the node must be restored.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()

		if back := switchTo(ctx, backends[0]); back != nil {
			err = errors.Join(err, fmt.Errorf("switch back to %q: %w", backends[0], back))
		}
	}()

	order := slices.Clone(backends)
	for range rounds {
		for _, b := range order {
			if b != current {
				current = b // it may be partly active from here on
				if err := switchTo(ctx, b); err != nil {
					return rows, fmt.Errorf("switch to %q: %w", b, err)
				}
			}

			got, err := measure(ctx)
			if err != nil {
				return rows, fmt.Errorf("backend %q: %w", b, err)
			}

			for i := range got {
				got[i].Backend = b
			}

			rows = append(rows, got...)
		}

		slices.Reverse(order)
	}

	return rows, nil
}
