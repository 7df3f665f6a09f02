// Command scale measures the controller on a cluster of many nodes and pods, all on this machine:
//
//	go run ./bench/scale [-nodes 100] [-pods 1000,3000,10000,30000] [-out build/scale.json] [-document docs/scale.md]
//
// The API server, northd and an ovsdb-server for each database are real. One node has a real
// ovn-controller and ovs-vswitchd. Kubelets, the controller manager and the ovn-controllers of
// other nodes do not run. The bench writes their objects (cluster.go) and rows (standin.go) itself.
//
// measureAll in this file starts the API server and creates all objects but the pods. Then
// bench.measure (phases.go) runs the same phases with each number of pods. result.go defines the
// figures, report.go the document and the bars.
//
// The command must run in the module's top directory, as root. It uses the platform in
// OVN_EBPF_PLATFORM. With the default sizes it takes about twenty minutes on 2 cores. It changes
// nothing on the machine except the cache of test/kube and test/platform. While it runs, it has a
// network namespace.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == replicaRole {
		daemon.CoarseTimers()
	}

	os.Exit(tether.Run(func() int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()

		if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			return 1
		}

		return 0
	}))
}

// replicaRole is the first argument of a replica. A replica is this program again, in a process of
// its own, which runs the controller (replica.go).
const replicaRole = "controller"

// config holds the flags.
type config struct {
	// The cluster.
	nodes, services, policies int
	pods                      []int  // sizes to measure, rising
	main                      int    // the size that the bars are for
	allocated                 int    // pods without addresses in the last measurement; 0: skip it
	seed                      uint64 // selects the nodes of the pods

	// The changes.
	rate       float64 // per second
	duration   time.Duration
	probes     int  // changes of each kind that are followed to the real node's flows; 0: no real node
	monitorAll bool // ovn-monitor-all of the real node's ovn-controller

	dir           string // temporary files
	out, document string // files of the figures and of the page; document "": none
	profile       string // directory; "": no profiles
	from          string // files of figures to report, separated by commas; "": measure
	gate          bool   // a missed bar is an error
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == replicaRole {
		return replicaMain(ctx, args[1:], stderr)
	}

	c, err := parse(args, stderr)
	if err != nil {
		return err
	}

	if c.dir, err = os.MkdirTemp("", "scale"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)

	r, err := measureAll(ctx, c, stderr)
	if err != nil {
		return errors.Join(err, keepLogs(c.dir, "build/scale-logs"))
	}

	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(c.out), 0o755); err != nil {
		return err
	}

	if err := os.WriteFile(c.out, append(text, '\n'), 0o644); err != nil {
		return err
	}

	return finish(c, r, stdout)
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	pods := flags.String("pods", "1000,3000,10000,30000", "numbers of pods to measure at, rising")
	flags.IntVar(&c.main, "main", 10000, "the number of pods that the bars are for")
	flags.IntVar(&c.nodes, "nodes", 100, "nodes")
	flags.IntVar(&c.services, "services", 1000, "Services, each with up to ten endpoints")
	flags.IntVar(&c.policies, "policies", 500, "NetworkPolicies")
	flags.IntVar(&c.allocated, "allocate", 2000, "pods that come without addresses at the end; 0: none")
	flags.Float64Var(&c.rate, "rate", 100, "changes a second")
	flags.DurationVar(&c.duration, "duration", 20*time.Second, "of the changes, at each size")
	flags.Uint64Var(&c.seed, "seed", 1, "of the nodes on which the pods are")
	flags.IntVar(&c.probes, "probes", 100, "changes of each kind that are followed to a real node's flows; 0: no real node")
	flags.BoolVar(&c.monitorAll, "monitor-all", true, "ovn-monitor-all of the real node")
	flags.StringVar(&c.out, "out", "build/scale.json", "where the figures go")
	flags.StringVar(&c.document, "document", "", "Markdown file to write; \"\": none")
	flags.StringVar(&c.profile, "profile", "", "directory for profiles of each replica; \"\": none")
	flags.BoolVar(&c.gate, "gate", false, "fail when a bar is missed")

	report := flags.String("report", "", "measure nothing: make the document from these figures; several files, separated by commas, are one document")
	if err := flags.Parse(args); err != nil {
		return c, err
	}

	for _, s := range strings.Split(*pods, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return c, fmt.Errorf("parse -pods: %w", err)
		}

		c.pods = append(c.pods, n)
	}

	if !slices.IsSorted(c.pods) {
		return c, errors.New("-pods must rise")
	}

	c.from = *report

	return c, nil
}

// measureAll measures all sizes, one after another, or reads the figures of earlier runs.
func measureAll(ctx context.Context, c config, stderr io.Writer) (r *result, err error) {
	if c.from != "" {
		return readResults(strings.Split(c.from, ","))
	}

	if err := platform.Use(platform.Name(), kube.CacheDir(), stderr); err != nil {
		return nil, err
	}

	b := &bench{config: c, out: stderr}
	r = &result{Nodes: c.nodes, Services: c.services, Policies: c.policies, Rate: c.rate, Main: c.main, Platform: platform.Name(), Seed: c.seed}

	b.say("platform %s, seed %d, %d nodes", r.Platform, c.seed, c.nodes)

	if b.cluster, err = newCluster(c.nodes, c.seed); err != nil {
		return nil, err
	}

	if b.api, err = startAPI(ctx, filepath.Join(c.dir, "kube")); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.api.server.Stop()) }()

	r.Machine = describe(ctx, b.api)
	b.say("services, policies")

	if err := b.api.fill(ctx, b.cluster, c.services, c.policies); err != nil {
		return nil, err
	}

	for _, n := range c.pods {
		s, err := b.measure(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("at %d pods: %w", n, err)
		}

		r.Sizes = append(r.Sizes, s)
	}

	if c.allocated > 0 {
		if r.Alloc, err = b.allocate(ctx, c.allocated); err != nil {
			return nil, fmt.Errorf("allocate: %w", err)
		}
	}

	return r, nil
}

// replicaMain is the main function of a replica.
func replicaMain(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	flags.SetOutput(stderr)

	var o replicaOptions
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "of the API server")
	flags.StringVar(&o.nb, "nb", "", "Northbound database")
	flags.StringVar(&o.identity, "identity", "", "in the election")
	flags.StringVar(&o.profile, "profile", "", "directory for profiles")

	metrics := flags.String("metrics", "", "address for metrics")
	if err := flags.Parse(args); err != nil {
		return err
	}

	return runController(ctx, o, *metrics)
}
