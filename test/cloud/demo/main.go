// Command demo shows underlay mode on one machine: a real Keystone and Neutron, hypervisors with OVN,
// VMs that are nodes of Kubernetes, pods that are ports of Neutron networks, traffic on every path, and
// a new pod after the whole control plane of the cloud has stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

type options struct {
	bin, cache, dir, name string
	keep                  bool
}

func main() {
	var o options
	defaultDir, defaultName := lab.Named("")
	flag.StringVar(&o.bin, "bin", "bin", "`directory` of the built programs")
	flag.StringVar(&o.cache, "cache", kube.CacheDir(), "`directory` for what is built once")
	flag.StringVar(&o.dir, "dir", defaultDir, "`directory` of the lab")
	flag.StringVar(&o.name, "name", defaultName, "prefix of the lab's `namespaces`")
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

// run brings the lab up, shows it, and takes it down.
func run(ctx context.Context, o options, w io.Writer) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	d := &demo{w: w, bin: bin, addresses: map[string]netip.Addr{}, began: time.Now()}
	d.part = d.began

	l, err := lab.Up(ctx, lab.Options{
		Dir: o.dir, Name: o.name, Owned: !o.keep, BinDir: bin, CacheDir: o.cache, Progress: w,
		Nodes: 2, VMs: 2, Cloud: true, Pods: true,
	})
	if err != nil {
		return err
	}
	d.Lab = l
	d.took("the lab")

	err = d.show(ctx)
	if o.keep {
		fmt.Fprintln(w, "\nThe lab keeps running.")
		which := ""
		if dir, _ := lab.Named(""); o.dir != dir {
			which = "--dir " + o.dir
		}
		l.Next(w, o.bin+"/ovnlab", which)
		return err
	}

	fmt.Fprintln(w, "\ntaking the lab down")
	err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))
	residue, residueErr := lab.Residue(o.dir, o.name)
	if len(residue) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: %s", strings.Join(residue, "; ")))
	}
	d.took("taking down")

	if err = errors.Join(err, residueErr); err == nil {
		fmt.Fprintf(w, "\n%sdone in %s, nothing left behind\n", d.times, time.Since(d.began).Round(time.Second))
	}
	return err
}

// demo is a running demo.
type demo struct {
	*lab.Lab
	w   io.Writer
	bin string // directory of the built programs

	addresses map[string]netip.Addr // of the pods that run

	began, part time.Time // of the demo, and of its current part
	times       string    // of the finished parts, a line each
}

// took records the time of the part that ends now.
func (d *demo) took(part string) {
	now := time.Now()
	d.times += fmt.Sprintf("%-28s %5.1f s\n", part, now.Sub(d.part).Seconds())
	d.part = now
}

// show creates pods, sends traffic on every path, and does so again without the cloud's control plane.
func (d *demo) show(ctx context.Context) error {
	if err := d.startServers(ctx); err != nil {
		return err
	}
	if err := d.startPods(ctx, pod{"a", "vm1"}, pod{"b", "vm1"}, pod{"c", "vm2"}); err != nil {
		return err
	}
	d.took("pods")

	if err := d.showPorts(ctx); err != nil {
		return err
	}
	d.took("the ports of Neutron")

	if err := d.showPaths(ctx, "a"); err != nil {
		return err
	}
	d.took("traffic on every path")

	return d.showOutage(ctx)
}

// controlPlane are the processes of the cloud that no pod needs.
var controlPlane = []string{
	"neutron-server", "keystone", "mariadbd", "central-ovn-northd", "central-ovnnb_db", "central-ovnsb_db",
}

// showOutage stops the control plane of the cloud, and starts it again after a new pod has had traffic on
// every path.
func (d *demo) showOutage(ctx context.Context) error {
	fmt.Fprintf(d.w, "\nstopping Neutron, Keystone, MariaDB, ovn-northd and OVN's databases\n")
	for _, name := range controlPlane {
		if err := d.StopProcess(name, true); err != nil {
			return err
		}
	}

	start := time.Now()
	if err := d.startPods(ctx, pod{"late", "vm1"}); err != nil {
		return err
	}
	fmt.Fprintf(d.w, "pod late runs after %.1f s\n", time.Since(start).Seconds())
	if err := d.showPaths(ctx, "late"); err != nil {
		return err
	}

	for i := len(controlPlane) - 1; i >= 0; i-- {
		if err := d.StartProcess(controlPlane[i]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := d.OpenStack().Await(ctx); err != nil {
		return err
	}
	d.took("without a control plane")
	return nil
}

// showPorts prints the pool of a node, and its ports as Neutron lists them.
func (d *demo) showPorts(ctx context.Context) error {
	for _, command := range [][]string{
		{"vm1", "ovnkube", "underlay", "pool"},
		{"cloud", "openstack", "port", "list", "--network", "k8s-vm1", "-c", "Name", "-c", "Fixed IP Addresses"},
	} {
		fmt.Fprintf(d.w, "\n%s:\n", strings.Join(command, " "))
		cmd, err := d.Login(ctx, command[0], command[1:]...)
		if err != nil {
			return err
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
		fmt.Fprint(d.w, string(out))
	}
	return nil
}
