package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

const (
	perEnd = "ms/end" // unit of BenchmarkBound, which test/e2e writes
	// boundTests are the tests that write it. test/vm/suite divides the text at each "|".
	boundTests  = "^shortcuts$/^policy, agent alive$|^shortcuts$/^policy, agent dead$"
	lease       = 1000 // of a shortcut, in milliseconds
	fewestTries = 20   // the test requires at least this number
)

// bound measures how long a connection with a shortcut lasts after OVS has begun to drop its
// packets because of a policy. It runs the end-to-end test in the VM, in layout direct. The test
// ends -tries connections for each kind of policy (egress and ingress) and each state of the agent
// (alive and dead). bound needs root and bin/, waits for the VM if another process has it, and
// writes build/bench/bound.txt.
func bound(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bound", flag.ContinueOnError)
	flags.SetOutput(stderr)
	tries := flags.Int("tries", 100, "how many connections are ended, of each kind")
	out := flags.String("out", "build/bench/bound.txt", "where the run goes")

	keep := flags.Bool("keep", false, "put the run into bench/results as well")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 {
		return fmt.Errorf("parse arguments: unexpected %q", flags.Arg(0))
	}

	if *tries < fewestTries {
		return fmt.Errorf("parse arguments: -tries is %d, want at least %d: fewer do not tell one lease from two", *tries, fewestTries)
	}

	r := results.Describe(ctx, results.Bound)

	text, err := measureBound(ctx, *tries, stderr)
	if err != nil {
		return err
	}

	if r.Measures, err = results.ParseGo("test/e2e", text); err != nil {
		return err
	}

	if err := checkBound(r.Measures, *tries); err != nil {
		return err
	}

	fmt.Fprint(stdout, boundTable(r.Measures))

	return write(&r, *out, *keep)
}

// measureBound runs the test and returns the results that it has written, in Go's benchmark format.
func measureBound(ctx context.Context, tries int, stderr io.Writer) (string, error) {
	work, err := scratch.Make("bound")
	if err != nil {
		return "", err
	}
	defer func() { _ = work.Remove() }() // test/sweep removes it otherwise

	cmd := exec.CommandContext(ctx, "test/vm/suite", "direct")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }

	cmd.Env = append(os.Environ(), "RUN="+boundTests, "KEEP="+work.Path, "VM_MINUTES=60", fmt.Sprintf("TRIES=%d", tries))

	cmd.Stdout, cmd.Stderr = stderr, stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run test/vm/suite: %w", err)
	}

	text, err := os.ReadFile(filepath.Join(work.Path, "bound.txt"))
	if err != nil {
		return "", fmt.Errorf("read what the test has measured: %w", err)
	}

	return string(text) + "PASS\n", nil // as go test does, after whole results
}

// checkBound returns an error unless the measures have at least tries connections of each kind.
func checkBound(measures []results.Measure, tries int) error {
	var errs []error

	for _, policy := range []string{"egress", "ingress"} {
		for _, agent := range []string{"alive", "dead"} {
			name := fmt.Sprintf("Bound/policy=%s/agent=%s", policy, agent)
			ended := 0

			for _, m := range measures {
				if m.Name == name {
					ended += len(m.Samples[perEnd])
				}
			}

			if ended < tries {
				errs = append(errs, fmt.Errorf("%s: %d connections, want %d", name, ended, tries))
			}
		}
	}

	return errors.Join(errs...)
}

// boundTable returns a table with a line for each kind: how many connections ended within the
// lease, and percentiles of their times.
func boundTable(measures []results.Measure) string {
	var b strings.Builder
	b.WriteString("| kind | connections | within 1 s | median | 95 % | longest |\n|---|---:|---:|---:|---:|---:|\n")

	for _, m := range measures {
		ends := slices.Sorted(slices.Values(m.Samples[perEnd]))
		if len(ends) == 0 {
			continue
		}

		late, _ := slices.BinarySearch(ends, lease+1)
		at := func(percent int) float64 { return ends[(len(ends)-1)*percent/100] }
		fmt.Fprintf(&b, "| %s | %d | %d | %.0f ms | %.0f ms | %.0f ms |\n", strings.TrimPrefix(m.Name, "Bound/"), len(ends), late, at(50), at(95), at(100))
	}

	return b.String()
}
