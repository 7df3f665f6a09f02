package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bench/live"
)

const benchPort = 7117

func benchCommands() *command {
	return &command{
		name: "bench", group: groupTry, summary: "measure between two nodes that are in use", detail: `On one node:    ovnkube bench serve --peer ADDRESS-OF-THE-OTHER
On the other:   ovnkube bench run ADDRESS-OF-THE-ONE

It sends requests of a byte and streams between the two hosts, each for some seconds, and says how many
there were, how long they took, and what CPU time a packet took at both ends. docs/benchmarks-live.md explains it.`,
		children: []*command{
			{name: "serve", summary: "answer one peer's measurements, for a limited time", setup: benchServeCommand},
			{
				name: "run", arguments: "ADDRESS", summary: "measure with a node that serves; asks before it sends anything", setup: benchRunCommand,
				detail: `With --backends ebpf,openflow it measures with the first, switches to the second and back, in rounds, and leaves
the first. It switches by --switch, a shell command that finds the name in $BACKEND and makes the node's agent
run with it; a round begins when the agent says that it has that backend and the gateway is not broken.`,
			},
		},
	}
}

func benchServeCommand(f *flag.FlagSet) action {
	var peer, listen netip.Addr
	f.TextVar(&peer, "peer", netip.Addr{}, "`address` that is answered, no other is")
	f.TextVar(&listen, "listen", netip.IPv6Unspecified(), "`address` to listen on")
	port := f.Uint("port", benchPort, "TCP and UDP `port`")
	span := f.Duration("for", 10*time.Minute, "how long, at most an hour")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return live.Serve(ctx, live.ServeOptions{
			Listen: netip.AddrPortFrom(listen, uint16(*port)), Peer: peer, For: *span,
			Ready: func(at netip.AddrPort) { fmt.Fprintf(env.stdout, "serving %s at %s for %s\n", peer, at, *span) },
		})
	}
}

// benchRun are the flags of a run.
type benchRun struct {
	live.Options
	rounds                           int
	backends, command, json, records string
	yes                              bool
}

func benchRunCommand(f *flag.FlagSet) action {
	r := benchRun{}
	f.IntVar(&r.Seconds, "seconds", 5, fmt.Sprintf("`seconds` a test, at most %d", live.MaxSeconds))
	f.IntVar(&r.Limit, "limit", 1000, "most `Mbit/s` of a stream, 0 is no limit")
	f.IntVar(&r.rounds, "rounds", 1, "how `often` each backend is measured")
	f.StringVar(&r.backends, "backends", "", "`names` separated by commas, the present one first; empty: as it is")
	f.StringVar(&r.command, "switch", "", "shell `command` that gives the agent the backend $BACKEND")
	f.StringVar(&r.json, "json", "", "`file` for the rows")
	finder := newFinder(f)
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	port := f.Uint("port", benchPort, "`port` of the one that serves")
	return func(ctx context.Context, args []string, env *environment) error {
		if len(args) != 1 {
			return errors.New("want the address of the node that serves")
		}
		peer, err := netip.ParseAddr(args[0])
		if err != nil {
			return fmt.Errorf("parse address: %w", err)
		}
		at, err := finder.find(ctx, env)
		if err != nil {
			return err
		}
		r.records = at.runDir
		r.Peer = netip.AddrPortFrom(peer, uint16(*port))
		return r.run(ctx, os.Stdin, env)
	}
}

func (r *benchRun) run(ctx context.Context, stdin io.Reader, env *environment) error {
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
		if err := r.ask(stdin, env.stdout, backends); err != nil {
			return err
		}
	}
	rows, err := live.Rounds(ctx, r.Options, backends, r.rounds, func(ctx context.Context, backend string) error {
		fmt.Fprintf(env.stderr, "switching to %s\n", backend)
		return r.switchTo(ctx, backend)
	})
	if len(rows) > 0 { // also what there is of a run that ended early
		fmt.Fprint(env.stdout, live.Report(rows))
		if r.json != "" {
			text, encoding := json.MarshalIndent(rows, "", "  ")
			err = errors.Join(err, encoding, os.WriteFile(r.json, append(text, '\n'), 0o644))
		}
	}
	return err
}

// ask says what will happen, and returns nil if the answer is yes.
func (r *benchRun) ask(stdin io.Reader, stdout io.Writer, backends []string) error {
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

// switchTo runs the command, and waits until the agent has the backend and the gateway
// is not broken.
func (r *benchRun) switchTo(ctx context.Context, backend string) error {
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

// backend returns the one that the agent has, with an error if the gateway is broken.
func (r *benchRun) backend(ctx context.Context) (string, error) {
	record, err := status.Read(r.records)
	if err != nil {
		return "", err
	}
	if report := status.Judge(status.Look(ctx, record)); report.State == status.Broken {
		return record.Wiring.Backend, errors.New("the gateway is broken: see ovnkube status")
	}
	return record.Wiring.Backend, nil
}
