// Command demo shows a complete cluster on one machine: objects in a real API server, the
// controller, real OVN, two nodes with the eBPF gateway, pods from the CNI plugin, traffic on every
// path, and the counters.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/ovn-ebpf/ovn-ebpf/test/demo"
	"github.com/ovn-ebpf/ovn-ebpf/test/e2e"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

func main() {
	var c *e2e.Cluster

	demo.Main(demo.Demo{
		Dir: "/run/ovn-ebpf-demo", Name: "demo",
		Up: func(ctx context.Context, o lab.Options) (*lab.Lab, error) {
			var err error
			if c, err = e2e.Start(ctx, o); err != nil {
				return nil, err
			}

			return c.Lab, nil
		},
		Show: func(ctx context.Context, w io.Writer) error { return show(ctx, c, w) },
	})
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
