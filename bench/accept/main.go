// Command accept makes the ratios of a run the baseline that the gate of CI compares
// with, and leaves the text of the commit that puts it there:
//
//	go run ./bench/accept -reason 'why the figures may be what they are' [-run build/bench/packets.json]
//
// A run that misses a bar, or was not of a commit, is refused.
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

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("accept", flag.ContinueOnError)
	flags.SetOutput(stderr)
	reason := flags.String("reason", "", "why, for the commit and the file")
	from := flags.String("run", "build/bench/packets.json", "the run")
	path := flags.String("baseline", "bench/baseline.json", "the file to write")
	message := flags.String("message", "build/bench/commit.txt", "where the commit's text goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := results.Read(*from)
	if err != nil {
		return err
	}
	rows := bench.OnKernel(r.Rows, report.Kernel)
	b, err := bench.Accept(rows, r.Commit, *reason)
	if err != nil {
		return err
	}
	old, err := read(*path)
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

// read returns the baseline that there is, or nil.
func read(path string) (*bench.Baseline, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read baseline: %w", err)
	}
	return bench.DecodeBaseline(text)
}
