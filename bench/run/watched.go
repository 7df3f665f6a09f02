package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

// watched measures how many instructions counting and a monitor add to a packet. It runs
// BenchmarkWatched of package bpf in the VM, and writes build/bench/watched.txt. It needs root, and
// waits for the VM if another process has it.
func watched(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("watched", flag.ContinueOnError)
	flags.SetOutput(stderr)
	batches := flags.Int("batches", 10, "of how many batches of packets a figure is the median")
	count := flags.Int("count", 5, "how often each is measured")
	out := flags.String("out", "build/bench/watched.txt", "where the run goes")

	keep := flags.Bool("keep", false, "put the run into bench/results as well, which documents are made of")
	if err := flags.Parse(args); err != nil {
		return err
	}

	r := results.Describe(ctx, results.Watched)

	text, err := measureWatched(ctx, *batches, *count, stderr)
	if err != nil {
		return err
	}

	if r.Measures, err = results.ParseGo("bpf", text); err != nil {
		return err
	}

	table, err := report.Watched(&r)
	if err != nil {
		return err
	}

	fmt.Fprint(stdout, table)

	return write(&r, *out, *keep)
}

// measureWatched returns the output of the benchmark.
func measureWatched(ctx context.Context, batches, count int, stderr io.Writer) (string, error) {
	work, err := scratch.Make("watched")
	if err != nil {
		return "", err
	}
	defer func() { _ = work.Remove() }() // test/sweep removes it otherwise

	binary := filepath.Join(work.Path, "bpf.test")
	if _, err := output(ctx, stderr, "go", "test", "-c", "-o", binary, "./bpf"); err != nil {
		return "", err
	}

	return output(ctx, stderr, "test/vm/run", "-i", "-t", "1500", "--", binary, "-test.run", "^$", "-test.bench", "^BenchmarkWatched$",
		"-test.benchtime", fmt.Sprintf("%dx", batches), "-test.count", fmt.Sprint(count), "-test.timeout", "30m")
}

// output runs a command and returns its standard output. Its standard error goes to stderr.
func output(ctx context.Context, stderr io.Writer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }

	var text bytes.Buffer

	cmd.Stdout, cmd.Stderr = &text, stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", name, errors.Join(err, ctx.Err()), text.String())
	}

	return text.String(), nil
}
