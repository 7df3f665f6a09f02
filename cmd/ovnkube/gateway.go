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
	counted, err := c.read(ctx, env)
	if err != nil {
		return err
	}

	if !c.all {
		counted = moved(counted)
	}

	if c.json {
		return env.printJSON(counted)
	}

	return counterTable(env.stdout, counted)
}

// read returns the counters of flows or programs. With a --pin-dir other than this agent's, it
// reads the programs of another agent.
func (c *counters) read(ctx context.Context, env *environment) ([]bpf.Counter, error) {
	at, err := c.find(ctx, env)
	if err != nil {
		return nil, err
	}

	ours := at.errRecord == nil && at.pinDir == at.record.Paths.PinDir
	if ours && at.record.Wiring.Backend == string(gateway.OpenFlow) {
		return flowsCounted(ctx, at.record, env)
	}

	counted, err := bpf.ReadCounters(at.pinDir)
	if err != nil {
		return nil, fmt.Errorf("%w (are these the agent's? %s)", err, at.where())
	}

	return counted, nil
}

func flowsCounted(ctx context.Context, record status.Record, env *environment) ([]bpf.Counter, error) {
	counted, err := status.Counters(ctx, record.Paths)
	if err == nil {
		return counted, nil
	}

	fmt.Fprintf(env.stderr, "only the counters of current flows, since they were written: %v\n", err)

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	return gateway.ReadFlowCounters(ctx, record.Paths.OVSRunDir, record.Wiring.Bridge)
}

// moved drops counters at zero.
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
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\n",
			c.Port, c.Direction, c.Verdict, c.Reason, c.Packets, c.Bytes)
	}

	return table.Flush()
}
