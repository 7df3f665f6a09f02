// Command native runs the packages' Go benchmarks on this machine, several times
// each, and makes of them a run like that of the packet path:
//
//	go run ./bench/native [-count 5] [-keep]
//
// They are: what a program takes for a packet (BPF_PROG_TEST_RUN) and the sockets'
// programs for a call; reading all counters, and a whole scrape; a whole agent's
// memory; bringing the gateway's and the sockets' tables in line; the flows of the
// OpenFlow backend; wiring a pod, as CNI ADD does; planning, and committing to a real
// ovsdb-server. It needs root. What it leaves is build/bench/native.json.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/bench/machine"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// suite is the benchmarks of some packages, and how long each takes at least.
type suite struct {
	packages []string
	time     string
}

func suites() []suite {
	return []suite{
		{[]string{"bpf", "agent", "agent/gateway", "agent/gateway/openflow", "agent/cluster", "agent/metrics", "agent/podnet", "controller/plan"}, "100ms"},
		{[]string{"controller/nb"}, "1x"},
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("native", flag.ContinueOnError)
	flags.SetOutput(stderr)
	count := flags.Int("count", 5, "how often each benchmark runs")
	out := flags.String("out", "build/bench/native.json", "where the run goes")
	keep := flags.Bool("keep", false, "put the run into bench/results as well, which documents are made of")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := machine.Describe(ctx, results.Native)
	for _, s := range suites() {
		for _, p := range s.packages {
			fmt.Fprintf(stderr, "bench: %s\n", p)
			text, err := benchmark(ctx, p, s.time, *count)
			if err != nil {
				return err
			}
			got, err := results.ParseGo(p, text)
			if err != nil {
				return err
			}
			r.Measures = append(r.Measures, got...)
		}
	}
	if err := r.Write(*out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d benchmarks: %s\n", len(r.Measures), *out)
	if *keep {
		return r.Keep()
	}
	return nil
}

func benchmark(ctx context.Context, pkg, atLeast string, count int) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchtime", atLeast, "-count", fmt.Sprint(count), "-timeout", "10m", "./"+pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run benchmarks of %s: %w\n%s", pkg, errors.Join(err, ctx.Err()), text.String())
	}
	return text.String(), nil
}
