package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// suite is a set of packages whose benchmarks run with the same -benchtime.
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

// native runs the packages' Go benchmarks on this machine, several times each, and writes
// build/bench/native.txt. It needs root. The benchmarks measure:
//
//   - the eBPF programs: of the gateway for a packet (BPF_PROG_TEST_RUN), of sockets for a system
//     call
//   - the agent: its memory, a read of all counters, a scrape, updates of the gateway's and the
//     sockets' tables, the flows of the OpenFlow backend, and a pod's interface (CNI ADD)
//   - the controller: planning, and commits to a real ovsdb-server
func native(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("native", flag.ContinueOnError)
	flags.SetOutput(stderr)
	count := flags.Int("count", 5, "how often each benchmark runs")
	out := flags.String("out", "build/bench/native.txt", "where the run goes")

	keep := flags.Bool("keep", false, "put the run into bench/results as well, which documents are made of")
	if err := flags.Parse(args); err != nil {
		return err
	}

	r := results.Describe(ctx, results.Native)

	for _, s := range suites() {
		for _, p := range s.packages {
			fmt.Fprintf(stderr, "bench: %s\n", p)

			text, err := output(ctx, stderr, "go", "test", "-run", "^$", "-bench", ".", "-benchtime", s.time,
				"-count", fmt.Sprint(*count), "-timeout", "10m", "./"+p)
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

	if err := write(&r, *out, *keep); err != nil {
		return err
	}

	fmt.Fprintf(stdout, "%d benchmarks: %s\n", len(r.Measures), *out)

	return nil
}
