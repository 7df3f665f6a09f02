package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/report"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// accept makes the ratios of a run the baseline of CI's gate, and writes the commit message. It
// refuses a run that misses a bar or was not of a commit.
func accept(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("accept", flag.ContinueOnError)
	flags.SetOutput(stderr)
	reason := flags.String("reason", "", "why, for the commit and the file")
	from := flags.String("run", "build/bench/packets.txt", "the run")
	path := flags.String("baseline", "bench/baseline.json", "the file to write")

	message := flags.String("message", "build/bench/commit.txt", "where the commit's text goes")
	if err := flags.Parse(args); err != nil {
		return err
	}

	r, err := results.Read(*from)
	if err != nil {
		return err
	}

	if r.Platform != results.Platform {
		return fmt.Errorf("accept baseline: measured on platform %q, want %s", r.Platform, results.Platform)
	}

	rows := bench.OnKernel(r.Rows, report.Kernel)

	b, err := bench.Accept(rows, r.Commit, *reason)
	if err != nil {
		return err
	}

	b.Platform = r.Platform

	old, err := bench.ReadBaseline(*path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = nil, nil
	}

	if err != nil {
		return err
	}

	text, err := b.Encode()
	if err != nil {
		return err
	}

	if err := errors.Join(os.WriteFile(*path, text, 0o644), os.WriteFile(*message, []byte(b.Message(old)), 0o644)); err != nil {
		return fmt.Errorf("write baseline: %w", err)
	}

	fmt.Fprintf(stdout, "%s\nNow: git commit -F %s %s\n", b.Message(old), *message, *path)

	return nil
}
