// Command ovnbench measures between two nodes that are in use (docs/benchmarks-live.md).
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bench/live"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

const defaultPort = 7117

func main() {
	commandline.Main("ovnbench", os.Args[1:], run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return commandline.Run(ctx, root(), args, stdout, stderr)
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use: "ovnbench", Short: "measure between two nodes that are in use",
		Long: `On one node:    ovnbench serve --peer ADDRESS-OF-THE-OTHER
On the other:   ovnbench run ADDRESS-OF-THE-ONE

It sends requests of a byte and streams between the two hosts, each for some seconds, and says how many
there were, how long they took, and what CPU time a packet took at both ends. docs/benchmarks-live.md explains it.`,
	}
	c.AddCommand(serveCommand(), runCommand())
	commandline.Prepare(c)

	return c
}

func serveCommand() *cobra.Command {
	c := &cobra.Command{Use: "serve", Short: "answer one peer's measurements, for a limited time", Args: cobra.NoArgs}

	var peer, listen netip.Addr
	c.Flags().TextVar(&peer, "peer", netip.Addr{}, "`address` that is answered, no other is")
	c.Flags().TextVar(&listen, "listen", netip.IPv6Unspecified(), "`address` to listen on")
	port := c.Flags().Uint16("port", defaultPort, "TCP and UDP `port`")
	span := c.Flags().Duration("for", 10*time.Minute, "`time` for which to serve, at most an hour")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return live.Serve(c.Context(), live.ServeOptions{
			Listen: netip.AddrPortFrom(listen, *port), Peer: peer, For: *span,
			Ready: func(at netip.AddrPort) { fmt.Fprintf(c.OutOrStdout(), "serving %s at %s for %s\n", peer, at, *span) },
		})
	}

	return c
}

// measuring holds the flags of the command run.
type measuring struct {
	live.Options
	rounds   int    // for each backend
	backends string // names, separated by commas; "": the present one
	command  string // of --switch
	json     string // file for the rows; "": none
	records  string // directory with the agent's record
	yes      bool
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run ADDRESS", Short: "measure with a node that serves; asks before it sends anything",
		Long: `With --backends ebpf,openflow it measures with the first, switches to the second and back, in rounds, and leaves
the first. It switches by --switch, a shell command that finds the name in $BACKEND and makes the node's agent
run with it; a round begins when the agent says that it has that backend and the gateway is not broken.`,
	}
	r := measuring{}
	f := c.Flags()
	f.IntVar(&r.Seconds, "seconds", 5, fmt.Sprintf("`seconds` per test, at most %d", live.MaxSeconds))
	f.IntVar(&r.Limit, "limit", 1000, "most `Mbit/s` of a stream, 0 is no limit")
	f.IntVar(&r.rounds, "rounds", 1, "`number` of times that each backend is measured")
	f.StringVar(&r.backends, "backends", "", "`names` separated by commas, the present one first; empty: as it is")
	f.StringVar(&r.command, "switch", "", "shell `command` that gives the agent the backend $BACKEND")
	f.StringVar(&r.json, "json", "", "`file` for the rows")
	f.StringVar(&r.records, "run-dir", cmp.Or(os.Getenv("OVNKUBE_RUN_DIR"), "/run/ovn-ebpf"), "the agent's `directory` (its setting run-dir)")
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	port := f.Uint16("port", defaultPort, "`port` of the node that serves")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("want the address of the node that serves")
		}

		peer, err := netip.ParseAddr(args[0])
		if err != nil {
			return fmt.Errorf("parse address: %w", err)
		}

		r.Peer = netip.AddrPortFrom(peer, *port)

		return r.run(c.Context(), os.Stdin, c.OutOrStdout(), c.ErrOrStderr())
	}

	return c
}

func (r *measuring) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	backends := strings.Split(r.backends, ",")
	if len(backends) > 1 {
		if r.command == "" {
			return errors.New("several backends, and no --switch to get from one to the other")
		}

		if have, err := r.backend(ctx); err != nil || have != backends[0] {
			return errors.Join(fmt.Errorf("the agent has the backend %q; name it first: it is the one that is left", have), err)
		}
	}

	if !r.yes {
		if err := r.ask(stdin, stdout, backends); err != nil {
			return err
		}
	}

	rows, err := live.Rounds(ctx, r.Options, backends, r.rounds, func(ctx context.Context, backend string) error {
		fmt.Fprintf(stderr, "switching to %s\n", backend)
		return r.switchTo(ctx, backend)
	})
	if len(rows) > 0 { // even if the run ended early
		fmt.Fprint(stdout, live.Report(rows))

		if r.json != "" {
			text, encoding := json.MarshalIndent(rows, "", "  ")
			err = errors.Join(err, encoding, os.WriteFile(r.json, append(text, '\n'), 0o644))
		}
	}

	return err
}

// ask describes the measurement, and returns nil if the user confirms.
func (r *measuring) ask(stdin io.Reader, stdout io.Writer, backends []string) error {
	streams := fmt.Sprintf("up to %d Mbit/s", r.Limit)
	if r.Limit == 0 {
		streams = "as much as the network carries"
	}

	fmt.Fprintf(stdout, "This measures between this node and %s for about %d s: requests one after the other, and streams of %s.\n",
		r.Peer, r.rounds*len(backends)*len(live.Tests())*r.Seconds, streams)

	if len(backends) > 1 {
		fmt.Fprintf(stdout, "It changes this node's backend, %s, by: %s\n", strings.Join(backends, " to "), r.command)
	}

	fmt.Fprint(stdout, "Traffic of the nodes may suffer. Go on? [y/N] ")

	line, _ := bufio.NewReader(stdin).ReadString('\n')

	fmt.Fprintln(stdout)

	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed, nothing was sent")
	}

	return nil
}

// switchTo runs the command, and waits until the agent has the backend and the gateway is not
// broken.
func (r *measuring) switchTo(ctx context.Context, backend string) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()

	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.command)

	cmd.Env = append(os.Environ(), "BACKEND="+backend)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %q: %w: %s", r.command, err, strings.TrimSpace(string(out)))
	}

	for {
		have, err := r.backend(ctx)
		if err == nil && have == backend {
			return nil
		}

		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the agent still has %q", have), err)
		case <-time.After(time.Second):
		}
	}
}

// backend returns the agent's backend, and an error if the gateway is broken.
func (r *measuring) backend(ctx context.Context) (string, error) {
	record, err := status.Read(r.records)
	if err != nil {
		return "", err
	}

	if report := status.Judge(status.Look(ctx, record)); report.State == status.Broken {
		return record.Wiring.Backend, errors.New("the gateway is broken: see ovnkube status")
	}

	return record.Wiring.Backend, nil
}
