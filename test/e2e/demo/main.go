// Command demo shows a complete cluster on one machine: objects in a real API server, the
// controller, real OVN, two nodes with the eBPF gateway, pods from the CNI plugin, traffic on every
// path, and the counters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/e2e"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

type options struct {
	bin, cache, dir string
	keep            bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`directory` of the built programs")
	flag.StringVar(&o.cache, "cache", kube.CacheDir(), "`directory` for what is built once")
	flag.StringVar(&o.dir, "dir", "/run/ovn-ebpf-demo", "`directory` of the lab")
	flag.BoolVar(&o.keep, "keep", false, "leave the lab running at the end")
	flag.Parse()
	demo := func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, o, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			return 1
		}
		return 0
	}
	if o.keep { // the lab outlives the demo
		os.Exit(demo())
	}
	os.Exit(tether.Run(demo))
}

func run(ctx context.Context, o options, w io.Writer) error {
	start := time.Now()
	if o.keep { // the user may need kubectl
		if _, err := kube.BuildForPods(ctx, o.cache, w); err != nil {
			return err
		}
	}
	c, err := e2e.Start(ctx, lab.Options{Dir: o.dir, Name: "demo", Owned: !o.keep, BinDir: o.bin, CacheDir: o.cache, Progress: w})
	if err != nil {
		return err
	}
	err = show(ctx, c, w)
	if o.keep {
		fmt.Fprintln(w, "\nThe lab keeps running.")
		c.Next(w, o.bin+"/ovnlab", "--dir "+o.dir)
		return err
	}
	fmt.Fprintln(w, "\ntaking the lab down")
	err = errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	residue, residueErr := lab.Residue(o.dir, "demo")
	if len(residue) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: %s", strings.Join(residue, "; ")))
	}
	if err = errors.Join(err, residueErr); err == nil {
		fmt.Fprintf(w, "done in %s, nothing left behind\n", time.Since(start).Round(time.Second))
	}
	return err
}

// show runs every path and prints its packet counts.
func show(ctx context.Context, c *e2e.Cluster, w io.Writer) error {
	fmt.Fprintf(w, "\n%d requests per line; packets that the gateways' eBPF programs counted, node1 and node2\n\n", e2e.Requests)
	fmt.Fprintf(w, "%-30s %-4s %-3s  %-15s %-15s %-15s %s\n", "PATH", "", "", "to the host", "to OVN", "from OVN", "the server saw")
	for _, path := range c.Paths() {
		for _, v6 := range []bool{false, true} {
			for _, protocol := range []string{"tcp", "udp"} {
				r, err := c.Run(ctx, path, protocol, v6)
				if err != nil {
					return fmt.Errorf("%s, %s %s: %w", path.Name, protocol, r.Family(), err)
				}
				if r.First != nil {
					fmt.Fprintf(w, "(run again: %v)\n", r.First)
				}
				fmt.Fprintln(w, line(r))
			}
		}
	}
	geneve, err := c.SeeGeneve(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nGeneve on the wire while a pod asks one on the other node:\n%s\n", geneve)
	for _, n := range c.Nodes() {
		out, err := c.Exec(ctx, n.Name, c.Binary("ovnkube"), "gateway", "counters", "--pin-dir", n.PinDir)
		if err != nil {
			return fmt.Errorf("counters of %s: %w: %s", n.Name, err, out)
		}
		fmt.Fprintf(w, "\novnkube gateway counters, on %s:\n%s", n.Name, out)
	}
	return nil
}

func line(r e2e.Result) string {
	a, b := r.Moved["node1"], r.Moved["node2"]
	pair := func(x, y uint64) string { return fmt.Sprintf("%d, %d", x, y) }
	return fmt.Sprintf("%-30s %-4s %-3s  %-15s %-15s %-15s %s", r.Path.Name, r.Protocol, r.Family(),
		pair(a.HostRx, b.HostRx), pair(a.OVNRx, b.OVNRx), pair(a.OVNTx, b.OVNTx), r.Seen)
}
