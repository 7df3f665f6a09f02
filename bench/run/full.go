package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// sweep is a set of tests and variants at several sizes.
type sweep struct {
	of, flag string // the flag of the harness
	sizes    []int
	variants []string
	tests    []string
}

// sweeps returns the sweeps: host connections up to the available ports and addresses, pod
// connections up to the SNAT ports towards one remote, and many more than the table of shortcuts has
// room for; and Services.
func sweeps() []sweep {
	return []sweep{
		{"connections", "-flows", []int{1, 1000, 100000}, []string{bench.NoOVS, bench.EBPF}, []string{bench.HostUDPRR + "/" + bench.IPv4}},
		{"connections", "-flows", []int{1, 1000, 10000}, []string{bench.Masquerade, bench.Helper, bench.EBPF, bench.Shortcuts}, []string{bench.NSUDPRR + "/" + bench.IPv4}},
		{"connections", "-flows", []int{1000000}, []string{bench.EBPF, bench.Shortcuts}, []string{bench.NSUDPRR + "/" + bench.IPv4}},
		{
			"services", "-services",
			[]int{10, 1000, 10000},
			[]string{bench.EBPF},
			[]string{bench.HostUDPRR + "/" + bench.IPv4, bench.NSUDPRR + "/" + bench.IPv4, bench.NodePortLocal, bench.ServiceTCPCRR},
		},
	}
}

// oldKernel is the oldest measured kernel.
const oldKernel = "6.1"

// full measures what CI has no time for: CI's rows on another kernel, and sweeps.
func full(ctx context.Context, c config, harness string, stdout, stderr io.Writer) error {
	r := results.Describe(ctx, results.Full)
	r.Seed, r.Boots = c.seed, 1
	old := c
	old.kernel, old.boots, old.tests, old.baseline = oldKernel, 1, shortTests(), ""
	old.variants = []string{bench.NoOVS, bench.Helper, bench.Masquerade, bench.EBPF, bench.Bridged, bench.Flowtable, bench.Shortcuts}
	var err error
	if r.Rows, _, err = packets(ctx, old, harness, stderr); err != nil {
		return err
	}
	c.timeout = max(c.timeout, 30*time.Minute) // a million connections
	for _, s := range sweeps() {
		points, err := s.run(ctx, c, harness, stderr)
		if err != nil {
			return err
		}
		r.Sweeps = append(r.Sweeps, points...)
	}
	if err := saveReport(c.out, &r, "full.md"); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Linux %s:\n\n%s\nAll of it: %s\n", r.Rows[0].Kernel, bench.Table(r.Rows, bench.Bars()), filepath.Join(c.out, "full.md"))
	if c.keep {
		err = r.Keep()
	}
	return errors.Join(err, report.Flat(r.Sweeps))
}

// run measures a sweep: numbers of connections in one boot per variant, numbers of Services in one
// boot each.
func (s sweep) run(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Point, error) {
	c.tests = s.tests
	boots := [][]int{s.sizes}
	if s.of == "services" {
		boots = slices.Collect(slices.Chunk(s.sizes, 1))
	}
	var points []bench.Point
	for _, v := range s.variants {
		for _, sizes := range boots {
			list := strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), "[]")
			fmt.Fprintf(stderr, "bench: %s, %s %s\n", v, list, s.of)
			rows, err := variant(ctx, c, harness, v, c.seed, stderr, s.flag, list)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", list, s.of, err)
			}
			got, err := pointsOf(s.of, sizes, rows)
			if err != nil {
				return nil, err
			}
			points = append(points, got...)
		}
	}
	return points, nil
}

// pointsOf assigns sizes to rows: the harness runs all tests at one size, then at the next.
func pointsOf(of string, sizes []int, rows []bench.Row) ([]bench.Point, error) {
	if len(rows) == 0 || len(rows)%len(sizes) != 0 {
		return nil, fmt.Errorf("measure %s: %d rows at %d sizes", of, len(rows), len(sizes))
	}
	var points []bench.Point
	for i, r := range rows {
		points = append(points, bench.Point{Of: of, Size: sizes[i/(len(rows)/len(sizes))], Row: r})
	}
	return points, nil
}

// shortTests returns CI's tests in the harness's syntax.
func shortTests() []string {
	var tests []string
	for _, t := range bench.ShortTests() {
		for _, family := range []string{bench.IPv4, bench.IPv6} {
			if bench.InShort(t, family) {
				tests = append(tests, t+"/"+family)
			}
		}
	}
	return slices.Clip(tests)
}
