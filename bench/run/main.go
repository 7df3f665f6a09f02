// Command run measures, and makes of the measurements what people read:
//
//	go run ./bench/run [packets] [-short] [-boots 3] [-kernel 6.12] [-variants no-ovs,ebpf] [-tests host_udp_rr] [-keep]
//	go run ./bench/run -full [-keep]
//	go run ./bench/run -profile docs/profile.md
//	go run ./bench/run native [-count 5] [-keep]
//	go run ./bench/run watched [-batches 10] [-count 5] [-keep]
//	go run ./bench/run bound [-tries 100] [-keep]
//	go run ./bench/run accept -reason 'why the figures may be what they are' [-run build/bench/packets.txt]
//	go run ./bench/run documents
//
// The packet path boots the test VM once for each variant, two VMs at a time, lets bench/harness
// measure there, writes the run with a report, prints the table and fails if a bar is missed. It
// leaves the run (packets.txt) and report.md in build/bench. With -baseline it is the gate of CI.
// With -full it measures Linux 6.1, and what grows with connections and Services. With -profile it
// shows where the instructions go, by bench/stacks in qemu; it needs gcc, and takes two to three
// minutes. Native and watched run Go benchmarks, here and in the VM. Bound runs an end-to-end test
// in the VM, and measures how long shortcuts last after a policy has forbidden their connection.
// Accept moves the gate's baseline. Documents writes the documents from the newest kept runs.
//
// Runs are in Go's benchmark format. Two of them are compared by benchstat:
//
//	go tool benchstat -table kind,cpu,pkg BEFORE.txt AFTER.txt
//
// It must be started in the module's top directory, as `make bench` does. The packet path needs
// qemu and OVS, changes nothing on the machine but the cache of test/vm, and takes about half a
// minute of a core for each variant.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs the command named by the first argument, by default the packet path.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name := "packets"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}

	switch name {
	case "packets":
		return run(ctx, args, stdout, stderr)
	case "native":
		return native(ctx, args, stdout, stderr)
	case "watched":
		return watched(ctx, args, stdout, stderr)
	case "bound":
		return bound(ctx, args, stdout, stderr)
	case "accept":
		return accept(args, stdout, stderr)
	case "documents":
		return documents()
	}

	return fmt.Errorf("parse arguments: %q is none of packets, native, watched, bound, accept, documents", name)
}

type config struct {
	kernel   string
	variants []string
	tests    []string // empty: all
	boots    int
	seed     int
	out      string
	keep     bool          // also in bench/results
	baseline string        // what the rows must not be worse than; "": nothing
	short    bool          // only what CI measures
	full     bool          // other kernels and sizes instead
	timeout  time.Duration // of one boot
	together int           // VMs at once
	profile  string        // Markdown to put profiles into, instead of measuring all; "" = none
}

// bars returns the bars that a run checks.
func (c config) bars() []bench.Bar {
	if c.short {
		return bench.ShortBars()
	}

	return bench.Bars()
}

func parse(args []string, stderr io.Writer) (config, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)

	var c config
	flags.StringVar(&c.kernel, "kernel", report.Kernel, "the guest's kernel, as test/vm/run names it")
	flags.IntVar(&c.boots, "boots", 1, "how often each variant is booted; a row is the median")
	flags.IntVar(&c.together, "together", min(2, runtime.NumCPU()), "how many VMs run at once; each needs a core, and counts the same")
	flags.IntVar(&c.seed, "seed", 1, "of the ports that clients send from; the second boot has the next")
	flags.StringVar(&c.out, "out", "build/bench", "the `directory` that the run and its report go to")
	flags.BoolVar(&c.keep, "keep", false, "put the run into bench/results as well, which documents are made of")
	flags.StringVar(&c.baseline, "baseline", "", "fail if a ratio is worse than in this file, or if it would not be noticed")
	flags.StringVar(&c.profile, "profile", "", "Markdown file with marks: put there where the instructions go, instead of measuring all")
	flags.BoolVar(&c.full, "full", false, "instead of the packet path on this kernel: on 6.1, and with 1 to 100,000 connections and 10 to 10,000 Services")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Minute, "of one variant")
	flags.BoolVar(&c.short, "short", false, "what CI has time for")
	variants := flags.String("variants", "", "which to measure, default all; bars need all")

	tests := flags.String("tests", "", "which tests to measure, default all")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}

	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("parse arguments: unexpected %q", flags.Arg(0))
	}

	if c.boots < 1 || c.together < 1 || c.seed < 0 {
		return config{}, errors.New("parse arguments: -boots, -together and -seed are natural numbers")
	}

	if c.keep && (c.short || *variants != "" || *tests != "") {
		return config{}, errors.New("parse arguments: -keep needs all variants and tests: documents show them")
	}

	c.variants = bench.AllVariants()
	if c.short {
		c.variants, c.tests = bench.Variants(), shortTests()
	}

	var err error
	if *variants != "" {
		c.variants, err = chosen("variant", *variants, bench.AllVariants())
	}

	if *tests != "" && err == nil {
		c.tests, err = chosen("test", *tests, bench.Tests())
	}

	return c, err
}

// chosen splits a list and checks that all elements are known.
func chosen(what, list string, all []string) ([]string, error) {
	some := strings.Split(list, ",")
	for _, name := range some {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("parse -%ss: no %s %q: one of %s", what, what, name, strings.Join(all, ", "))
		}
	}

	return some, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}

	if err := platform.Use(platform.Name(), cache(), stderr); err != nil {
		return err
	}

	if err := checkTools(); err != nil {
		return err
	}

	work, err := scratch.Make("bench")
	if err != nil {
		return err
	}

	defer func() { _ = work.Remove() }() // test/sweep removes it otherwise

	dir := work.Path

	harness := filepath.Join(dir, "harness")
	if err := build(ctx, harness, stderr); err != nil {
		return err
	}

	if c.profile != "" {
		return profile(ctx, c, dir, harness, stderr)
	}

	if c.full {
		return full(ctx, c, harness, stdout, stderr)
	}

	return measure(ctx, c, harness, stdout, stderr)
}

// cache returns the directory of platforms and test kernels, as test/vm has it.
func cache() string { return cmp.Or(os.Getenv("OVN_EBPF_CACHE"), "/var/cache/ovn-ebpf") }

// measure runs the packet path: a run, its report, and the gate.
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

	if rows, err = again(rows, c.bars(), accepted, func(variants []string) ([]bench.Row, error) {
		fmt.Fprintf(stderr, "bench: over a limit, once more: %s\n", strings.Join(variants, ", "))

		c := c
		c.variants, c.seed = variants, c.seed+c.boots
		rows, _, err := packets(ctx, c, harness, stderr)

		return rows, err
	}); err != nil {
		return err
	}

	r.Rows, rows = apart(rows)
	if accepted == nil { // what was measured once more is not among the samples
		r.Samples = samples
	}

	if err := save(c, &r, "report.md"); err != nil {
		return err
	}

	fmt.Fprintf(stdout, "Instructions per operation, median ± distance of the quartiles; Linux %s in a VM, platform %s (%s):\n\n%s\nReport: %s\n",
		r.Rows[0].Kernel, r.Platform, r.Versions, bench.Table(r.Rows, c.bars()), filepath.Join(c.out, "report.md"))

	return errors.Join(bench.Gate(r.Rows, c.bars()), gate(accepted, r.Rows, rows))
}

// apart separates measured from planted rows.
func apart(rows []bench.Row) (measured, planted []bench.Row) {
	for _, r := range rows {
		if r.Variant == bench.Planted {
			planted = append(planted, r)
		} else {
			measured = append(measured, r)
		}
	}

	return measured, planted
}

// again measures the variants over a limit once more, each with the variant that it is compared
// with. It returns the rows of that run if they are within all limits: a regression persists.
func again(rows []bench.Row, bars []bench.Bar, accepted *bench.Baseline, measure func(variants []string) ([]bench.Row, error)) ([]bench.Row, error) {
	measured, _ := apart(rows)

	variants := bench.Suspects(measured, bars, accepted)
	if len(variants) == 0 {
		return rows, nil
	}

	second, err := measure(variants)
	if err != nil {
		return nil, err
	}

	replaced := bench.Replace(rows, second)

	measured, _ = apart(replaced)
	if len(bench.Suspects(measured, bars, accepted)) > 0 {
		return rows, nil
	}

	return replaced, nil
}

// gate checks the rows against the baseline, if any, and the gate against the planted row.
func gate(b *bench.Baseline, rows, planted []bench.Row) error {
	if b == nil {
		return nil
	}

	if len(planted) != 1 {
		return fmt.Errorf("check the gate: %d planted rows, want 1", len(planted))
	}

	return errors.Join(b.Check(rows), b.CheckPlanted(rows, planted[0]))
}
