package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

func countersCommand(f *flag.FlagSet) action {
	pinDir := f.String("pin-dir", "/sys/fs/bpf/ovn-ebpf", "`directory` of the pinned maps, as given to the agent")
	all := f.Bool("all", false, "also the reasons that never occurred")
	asJSON := f.Bool("json", false, "an array of objects instead of a table")
	return func(_ context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		counters, err := bpf.ReadCounters(*pinDir)
		if err != nil {
			return fmt.Errorf("%w (is the agent's --pin-dir %s?)", err, *pinDir)
		}
		if !*all {
			counters = moved(counters)
		}
		if *asJSON {
			encoder := json.NewEncoder(env.stdout)
			encoder.SetIndent("", "  ")
			return encoder.Encode(counters)
		}
		return counterTable(env.stdout, counters)
	}
}

// moved leaves out the counters at zero.
func moved(counters []bpf.Counter) []bpf.Counter {
	some := []bpf.Counter{}
	for _, c := range counters {
		if c.Packets > 0 {
			some = append(some, c)
		}
	}
	return some
}

func counterTable(w io.Writer, counters []bpf.Counter) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PORT\tDIRECTION\tVERDICT\tREASON\tPACKETS\tBYTES")
	for _, c := range counters {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\n", c.Port, c.Direction, c.Verdict, c.Reason, c.Packets, c.Bytes)
	}
	return table.Flush()
}
