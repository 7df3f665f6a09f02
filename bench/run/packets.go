package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// measure measures the packet path, writes the run and its report, prints the table, and returns an
// error if a bar is missed or a ratio is worse than the baseline.
func measure(ctx context.Context, c config, harness string, stdout, stderr io.Writer) error {
	r := results.Describe(ctx, results.Packets)
	r.Seed, r.Boots = c.seed, c.boots

	var accepted *bench.Baseline

	if c.baseline != "" {
		var err error
		if accepted, err = bench.ReadBaseline(c.baseline); err != nil {
			return err
		}

		if accepted.Platform != "" && accepted.Platform != r.Platform {
			return fmt.Errorf("compare with baseline: it is of platform %s, this is %s", accepted.Platform, r.Platform)
		}
	}

	rows, samples, err := packets(ctx, c, harness, stderr)
	if err != nil {
		return err
	}

	if rows, err = remeasure(rows, c.bars(), accepted, func(variants []string) ([]bench.Row, error) {
		fmt.Fprintf(stderr, "bench: over a limit, once more: %s\n", strings.Join(variants, ", "))

		c := c
		c.variants, c.seed = variants, c.seed+c.boots
		rows, _, err := packets(ctx, c, harness, stderr)

		return rows, err
	}); err != nil {
		return err
	}

	var planted []bench.Row

	r.Rows, planted = separatePlanted(rows)
	if accepted == nil { // a run of the gate has only medians
		r.Samples = samples
	}

	if err := save(c, &r, "report.md"); err != nil {
		return err
	}

	fmt.Fprintf(stdout, "Instructions per operation, median ± distance of the quartiles; Linux %s in a VM, platform %s (%s):\n\n%s\nReport: %s\n",
		r.Rows[0].Kernel, r.Platform, r.Versions, bench.Table(r.Rows, c.bars()), filepath.Join(c.out, "report.md"))

	return errors.Join(bench.Gate(r.Rows, c.bars()), checkGate(accepted, r.Rows, planted))
}

// separatePlanted separates the rows of variants from those of bench.Planted.
func separatePlanted(rows []bench.Row) (measured, planted []bench.Row) {
	for _, r := range rows {
		if r.Variant == bench.Planted {
			planted = append(planted, r)
		} else {
			measured = append(measured, r)
		}
	}

	return measured, planted
}

// remeasure measures the variants over a limit once more, each with the variant that it is compared
// with. If the new rows are within all limits, it returns them in the place of the old ones: a real
// regression would persist. Otherwise it returns the old rows.
func remeasure(rows []bench.Row, bars []bench.Bar, accepted *bench.Baseline, measure func(variants []string) ([]bench.Row, error)) ([]bench.Row, error) {
	measured, _ := separatePlanted(rows)

	variants := bench.Suspects(measured, bars, accepted)
	if len(variants) == 0 {
		return rows, nil
	}

	second, err := measure(variants)
	if err != nil {
		return nil, err
	}

	replaced := bench.Replace(rows, second)

	measured, _ = separatePlanted(replaced)
	if len(bench.Suspects(measured, bars, accepted)) > 0 {
		return rows, nil
	}

	return replaced, nil
}

// checkGate compares the rows with the baseline, and checks that the baseline would detect the
// planted row. It returns nil if b is nil.
func checkGate(b *bench.Baseline, rows, planted []bench.Row) error {
	if b == nil {
		return nil
	}

	if len(planted) != 1 {
		return fmt.Errorf("check the gate: %d planted rows, want 1", len(planted))
	}

	return errors.Join(b.Check(rows), b.CheckPlanted(rows, planted[0]))
}

// packets measures the variants in the configured number of boots. It returns the merged rows, and
// the results of each boot (bench.Samples).
func packets(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Row, map[string][]float64, error) {
	n := len(c.variants)

	all, err := together(ctx, c.together, c.boots*n, func(ctx context.Context, i int) ([]bench.Row, error) {
		b, v := i/n, c.variants[i%n]
		fmt.Fprintf(stderr, "bench: boot %d of %d, %d of %d: %s\n", b+1, c.boots, i%n+1, n, v)

		var more []string
		if c.baseline != "" && v == bench.Shortcuts {
			more = []string{"-plant"}
		}

		return variant(ctx, c, harness, v, c.seed+b, stderr, more...)
	})
	if err != nil {
		return nil, nil, err
	}

	var boots [][]bench.Row
	for variants := range slices.Chunk(all, n) {
		boots = append(boots, slices.Concat(variants...))
	}

	rows := bench.Merge(boots...)
	if len(rows) == 0 {
		return nil, nil, errors.New("measure: no variant has any of the tests")
	}

	return rows, bench.Samples(boots...), nil
}

// together calls do for 0 to n-1, at most atOnce of them at a time, and returns the results in this
// order. The first error ends the contexts of the other calls.
func together[T any](ctx context.Context, atOnce, n int, do func(ctx context.Context, i int) (T, error)) ([]T, error) {
	results := make([]T, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)

	for i := range n {
		group.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}

			results[i], err = do(ctx, i)

			return err
		})
	}

	return results, group.Wait()
}

// shortBatches is the number of batches per test in CI. Batches differ by half a percent. So the
// median of 21 batches is within 0.2 % of that of 41 batches, the harness's default. The gate's
// limits are 1.5 % or more.
const shortBatches = 21

// variant measures one variant in one boot. A boot with a failed check of the harness is repeated
// once: a single stray packet is enough to fail one, and should not end a long run. A real fault
// fails again.
func variant(ctx context.Context, c config, harness, name string, seed int, stderr io.Writer, more ...string) ([]bench.Row, error) {
	command := []string{harness, "-variant", name, "-seed", fmt.Sprint(seed)}
	if len(c.tests) > 0 {
		command = append(command, "-tests", strings.Join(c.tests, ","))
	}

	if c.short {
		command = append(command, "-batches", fmt.Sprint(shortBatches))
	}

	command = append(command, more...)

	out, err := boot(ctx, c, stderr, command...)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "bench: measure %s: %v; once more\n", name, err)
		out, err = boot(ctx, c, stderr, command...)
	}

	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", name, err)
	}

	rows, err := bench.Read(out)
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", name, err)
	}

	return rows, nil
}
