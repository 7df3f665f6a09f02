// Command run runs the project's benchmarks, keeps their results and writes the documents about
// them:
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
// The first word is the command:
//
//   - packets measures the packet path. It boots the test VM once for each variant, two VMs at a
//     time, in which bench/harness measures. It writes packets.txt and report.md to build/bench,
//     prints the table, and fails if a bar is missed. With -baseline, it is the gate of CI. With
//     -full, it measures Linux 6.1, and how the cost grows with connections and Services, instead.
//     With -profile, it shows where the instructions go, by the plugin bench/stacks in qemu. That
//     needs gcc, and takes two to three minutes.
//   - native and watched run Go benchmarks, native on this machine, watched in the VM.
//   - bound runs an end-to-end test in the VM. It measures how long shortcuts last after a policy
//     has forbidden their connection.
//   - accept replaces the baseline of the gate.
//   - documents writes the documents from the newest kept runs.
//
// With -keep, a run is kept in bench/results. Runs are in Go's benchmark format, so benchstat
// compares two of them:
//
//	go tool benchstat -table kind,cpu,pkg BEFORE.txt AFTER.txt
//
// The command must run in the module's top directory, as `make bench` does. The packet path needs
// qemu and OVS, and takes about half a minute of a core for each variant. It changes nothing on the
// machine except the cache of test/vm.
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
		return packetPath(ctx, args, stdout, stderr)
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

// config holds the flags of the packet path.
type config struct {
	kernel   string        // of the guest
	variants []string      // of bench.AllVariants
	tests    []string      // of bench.Tests, or NAME/FAMILY; empty: all
	boots    int           // of each variant
	seed     int           // of the clients' ports in the first boot
	timeout  time.Duration // of one boot
	together int           // VMs at the same time

	short    bool   // measure only the rows of CI
	full     bool   // measure other kernels and sizes instead
	profile  string // Markdown file to write profiles to, instead of measuring; "": none
	baseline string // file of the baseline, which the ratios must not exceed; "": none

	out  string // directory of the results
	keep bool   // keep the run in bench/results, too
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

// chosen splits the list of the flag -variants or -tests, and checks that all words are known. what
// is the singular of the flag's name.
func chosen(what, list string, all []string) ([]string, error) {
	some := strings.Split(list, ",")
	for _, name := range some {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("parse -%ss: no %s %q: one of %s", what, what, name, strings.Join(all, ", "))
		}
	}

	return some, nil
}

// packetPath is the command packets: the packet path, or with flags its profiles or the full
// measurement.
func packetPath(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
