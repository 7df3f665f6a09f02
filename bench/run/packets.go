package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// packets measures the variants, in as many boots as asked for, and returns also what
// each boot found.
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
