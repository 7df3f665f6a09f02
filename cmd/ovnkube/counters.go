package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const countersDetail = `With the backend ebpf, the figures are from the programs' maps since the gateway's setup, also without an agent.
With the backend openflow, they are from the agent, since its start. If the agent does not answer, they are from
Open vSwitch, since the current flows were written.`

// counters holds the flags of the command.
type counters struct {
	finder
	all, json bool
}

func countersCommand(f *flag.FlagSet) action {
	c := &counters{finder: newPinFinder(f)}
	f.BoolVar(&c.all, "all", false, "include reasons that never occurred")
	f.BoolVar(&c.json, "json", false, "an array of objects instead of a table")

	return c.run
}

func (c *counters) run(ctx context.Context, _ []string, env *environment) error {
	list, err := c.read(ctx, env)
	if err != nil {
		return err
	}

	if !c.all {
		list = nonZero(list)
	}

	if c.json {
		return env.printJSON(list)
	}

	return printCounters(env.stdout, list)
}

// read returns the counters of flows or programs. With a --pin-dir other than this agent's, it
// reads the programs of another agent.
func (c *counters) read(ctx context.Context, env *environment) ([]bpf.Counter, error) {
	found, err := c.find(ctx, env)
	if err != nil {
		return nil, err
	}

	isOwnAgent := found.errRecord == nil && found.pinDir == found.record.Paths.PinDir
	if isOwnAgent && found.record.Wiring.Backend == string(gateway.OpenFlow) {
		return readFlowCounters(ctx, found.record, env)
	}

	list, err := bpf.ReadCounters(found.pinDir)
	if err != nil {
		return nil, fmt.Errorf("%w (are these the agent's? %s)", err, found.where())
	}

	return list, nil
}

// readFlowCounters returns the counters of flows from the agent, or from Open vSwitch if the agent
// does not answer.
func readFlowCounters(ctx context.Context, record status.Record, env *environment) ([]bpf.Counter, error) {
	list, err := status.Counters(ctx, record.Paths)
	if err == nil {
		return list, nil
	}

	fmt.Fprintf(env.stderr, "only the counters of current flows, since they were written: %v\n", err)

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	return gateway.ReadFlowCounters(ctx, record.Paths.OVSRunDir, record.Wiring.Bridge)
}

// nonZero returns the counters that are not zero. The result is not nil, which would be null in
// JSON.
func nonZero(counters []bpf.Counter) []bpf.Counter {
	out := []bpf.Counter{}

	for _, c := range counters {
		if c.Packets > 0 {
			out = append(out, c)
		}
	}

	return out
}

// printCounters prints the counters for a terminal.
func printCounters(w io.Writer, counters []bpf.Counter) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PORT\tDIRECTION\tVERDICT\tREASON\tPACKETS\tBYTES")

	for _, c := range counters {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\n",
			c.Port, c.Direction, c.Verdict, c.Reason, c.Packets, c.Bytes)
	}

	return table.Flush()
}
