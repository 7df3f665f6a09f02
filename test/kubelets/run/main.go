// Command run starts a cluster of kubelets with the network, runs upstream's tests in it, and
// removes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/test/kubelets"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func main() {
	// People look into a cluster that is held, so its namespaces are the machine's.
	direct := slices.ContainsFunc(os.Args[1:], func(arg string) bool {
		return slices.Contains([]string{"hold", "down"}, strings.TrimLeft(arg, "-"))
	})
	if direct {
		os.Exit(kubeletsMain())
	}

	if tether.Outside() { // a killed run that held its cluster left processes, which are not seen inside
		if err := kubelets.Down(context.Background(), kubelets.Options{BinDir: "bin", Source: "."}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(tether.Run(kubeletsMain))
}

func kubeletsMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	o := kubelets.Options{Source: ".", Progress: stdout}
	flags.StringVar(&o.BinDir, "bin", "bin", "`directory` of ovnkube and ovn-k8s-cni-overlay")
	flags.StringVar(&o.CacheDir, "cache", "", "`directory` for what is built once")
	flags.StringVar(&o.Release, "release", "", "`directory` of make release, whose chart and image are installed")
	flags.IntVar(&o.Nodes, "nodes", 3, "`number` of nodes")
	logs := flags.String("logs", "build/e2e", "`directory` for test reports, and for all logs after a failure")
	procs := flags.Int("procs", 4, "number of concurrent `specs`")
	focus := flags.String("focus", "", "run the specs that match this `regexp` instead of suites")
	skip := flags.String("skip", "", "with -focus: but not those that match this `regexp`")
	reboot := flags.Bool("reboot", false, "then reboot a node: its pods must come back")
	central := flags.Bool("central", false, "with three members of OVN's databases: update Open vSwitch of a node, kill members, restore a backup, upgrade and roll back the chart, under traffic")
	rotate := flags.Bool("rotate", false, "renew a node's certificate, change both authorities, delete the pod of OVN's databases and fill their disk, under traffic")
	flags.BoolVar(&o.Uninstall, "uninstall", false, "at the end update our image and uninstall the chart, as docs/install.md says: nodes must be as before")
	down := flags.Bool("down", false, "only remove the leftovers of a killed run")
	deployment := flags.String("deployment", "", "instead: install our network by this `tool`, "+strings.Join(kubelets.Tools(), " or ")+", update it and uninstall it, as docs/install.md says")
	controllers := flags.Int("controllers", 1, "with -deployment: `number` of controllers")

	hold := flags.Bool("hold", false, "then wait for SIGINT, with the cluster up")
	if err := flags.Parse(args); err != nil {
		return err
	}

	suites, err := chosen(flags.Args(), *focus, *skip)
	if err != nil {
		return err
	}

	if *logs, err = filepath.Abs(*logs); err != nil {
		return err
	}

	if *down {
		return kubelets.Down(ctx, o)
	}

	o.NoNetwork = *deployment != ""
	if *central {
		o.Members = 3
	}

	o.Volume, o.Traffic = *rotate, *rotate || *central

	c, err := kubelets.Up(ctx, o)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()

	if o.NoNetwork {
		err = c.Deployment(ctx, *deployment, *controllers)
	} else {
		err = c.Confined(ctx)
	}

	for _, s := range suites {
		specs, failed := c.Run(ctx, s, *procs, *logs)
		kubelets.Print(stdout, s, specs)

		err = errors.Join(err, failed)
	}

	if *reboot {
		err = errors.Join(err, c.Reboot(ctx))
	}

	if *central && err == nil {
		err = c.Central(ctx)
	}

	if *rotate && err == nil {
		err = c.Rotate(ctx)
	}

	if o.Uninstall && err == nil {
		err = c.Uninstall(ctx)
	}

	if err != nil {
		err = errors.Join(err, c.SaveLogs(filepath.Join(*logs, "cluster")))
	}

	if *hold {
		fmt.Fprintln(stdout, "holding; end with SIGINT")
		<-ctx.Done()
	}

	return err
}

func chosen(names []string, focus, skip string) (suites []kubelets.Suite, err error) {
	if focus != "" {
		s := kubelets.Suite{Name: "focus", Focus: focus, Least: 1}
		if skip != "" {
			s.Skip = []kubelets.LeftOut{{Match: skip, Reason: "-skip"}}
		}

		return []kubelets.Suite{s}, nil
	}

	for _, name := range names {
		found := false

		for _, s := range kubelets.Suites() {
			if s.Name == name {
				suites, found = append(suites, s), true
			}
		}

		if !found {
			var known []string
			for _, s := range kubelets.Suites() {
				known = append(known, s.Name)
			}

			return nil, fmt.Errorf("no suite %q: %s", name, strings.Join(known, ", "))
		}
	}

	return suites, nil
}
