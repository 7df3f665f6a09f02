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

// sweep measures tests of some variants with several sizes, for example numbers of connections.
type sweep struct {
	of, flag string // the name of the size, and the flag of the harness that sets it
	sizes    []int
	variants []string
	tests    []string
}

// sweeps returns the sweeps: connections of the host, as many as it has ports and addresses for;
// connections of pods, as many as there are SNAT ports towards one peer, and many more than the
// table of shortcuts has room for; and Services.
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
	old.variants = []string{bench.NoOVS, bench.Helper, bench.Masquerade, bench.EBPF, bench.Bridged, bench.Flowtable, bench.Shortcuts, bench.ShortcutsBridged}

	var err error
	if r.Rows, _, err = packets(ctx, old, harness, stderr); err != nil {
		return err
	}

	c.timeout = max(c.timeout, 30*time.Minute) // for a million connections
	if r.Sweeps, err = measureSweeps(ctx, c, harness, stderr); err != nil {
		return err
	}

	err = save(c, &r, "full.md")

	fmt.Fprintf(stdout, "Linux %s:\n\n%s\nAll of it: %s\n", r.Rows[0].Kernel, bench.Table(r.Rows, bench.Bars()), filepath.Join(c.out, "full.md"))

	return errors.Join(err, report.Flat(r.Sweeps))
}

// sweepBoot is one boot of a sweep: a variant at several sizes.
type sweepBoot struct {
	sweep
	variant string
}

// boots returns the boots of a sweep: one per variant for numbers of connections, and one per
// variant and size for numbers of Services.
func (s sweep) boots() []sweepBoot {
	sizes := [][]int{s.sizes}
	if s.of == "services" {
		sizes = slices.Collect(slices.Chunk(s.sizes, 1))
	}

	var boots []sweepBoot

	for _, v := range s.variants {
		for _, some := range sizes {
			boot := sweepBoot{s, v}
			boot.sizes = some
			boots = append(boots, boot)
		}
	}

	return boots
}

// measureSweeps measures all sweeps.
func measureSweeps(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Point, error) {
	var boots []sweepBoot
	for _, s := range sweeps() {
		boots = append(boots, s.boots()...)
	}

	points, err := together(ctx, c.together, len(boots), func(ctx context.Context, i int) ([]bench.Point, error) {
		return boots[i].run(ctx, c, harness, stderr)
	})

	return slices.Concat(points...), err
}

func (b sweepBoot) run(ctx context.Context, c config, harness string, stderr io.Writer) ([]bench.Point, error) {
	c.tests = b.tests
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(b.sizes), " ", ","), "[]")
	fmt.Fprintf(stderr, "bench: %s, %s %s\n", b.variant, list, b.of)

	rows, err := variant(ctx, c, harness, b.variant, c.seed, stderr, b.flag, list)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", list, b.of, err)
	}

	return pointsOf(b.of, b.sizes, rows)
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

// shortTests returns the tests of CI, as the harness's flag -tests takes them: NAME/FAMILY.
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
