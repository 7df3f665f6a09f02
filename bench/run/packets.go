package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// packets measures the variants in the configured number of boots. It also returns the results of
// each boot.
func packets(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Row, map[string][]float64, error) {
	of := len(c.variants)

	results, err := together(ctx, c.together, c.boots*of, func(ctx context.Context, i int) ([]bench.Row, error) {
		b, v := i/of, c.variants[i%of]
		fmt.Fprintf(stderr, "bench: boot %d of %d, %d of %d: %s\n", b+1, c.boots, i%of+1, of, v)

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
	for variants := range slices.Chunk(results, of) {
		boots = append(boots, slices.Concat(variants...))
	}

	rows := bench.Merge(boots...)
	if len(rows) == 0 {
		return nil, nil, errors.New("measure: no variant has any of the tests")
	}

	return rows, bench.Samples(boots...), nil
}

// together calls do for each of n numbers, at most so many at a time, and returns the results in the
// order of the numbers. The first error ends the others' contexts.
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

// shortBatches is the number of batches per test in CI. Batches differ by half a percent, so the
// median of 21 is within 0.2 % of that of 41, the harness's default, and the gate's limits are 1.5 %
// or more.
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
