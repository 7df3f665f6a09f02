package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// packets measures the variants in the configured number of boots. It also returns the results of
// each boot.
func packets(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Row, map[string][]float64, error) {
	var boots [][]bench.Row
	for b := range c.boots {
		var rows []bench.Row
		for i, v := range c.variants {
			fmt.Fprintf(stderr, "bench: boot %d of %d, %d of %d: %s\n", b+1, c.boots, i+1, len(c.variants), v)
			var more []string
			if c.baseline != "" && v == bench.EBPF {
				more = []string{"-plant"}
			}
			got, err := variant(ctx, c, harness, v, c.seed+b, stderr, more...)
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, got...)
		}
		boots = append(boots, rows)
	}
	rows := bench.Merge(boots...)
	if len(rows) == 0 {
		return nil, nil, errors.New("measure: no variant has any of the tests")
	}
	return rows, bench.Samples(boots...), nil
}

// variant measures one variant in one boot. A boot with a failed check of the harness is repeated
// once: a single stray packet is enough to fail one, and should not end a long run. A real fault
// fails again.
func variant(ctx context.Context, c config, harness, name string, seed int, stderr io.Writer, more ...string) ([]bench.Row, error) {
	command := []string{harness, "-variant", name, "-seed", fmt.Sprint(seed)}
	if len(c.tests) > 0 {
		command = append(command, "-tests", strings.Join(c.tests, ","))
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
