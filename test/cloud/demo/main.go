// Command demo shows underlay mode on one machine: a real Keystone and Neutron, hypervisors with
// OVN, VMs that are nodes of Kubernetes, pods that are ports of Neutron networks, traffic on every
// path, a new pod after the whole control plane of the cloud has stopped, and the Event of a fault.
package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/demo"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

func main() {
	d := &cloudDemo{pods: map[string]running{}, part: time.Now()}
	dir, name := lab.Named("")
	demo.Main(demo.Demo{Dir: dir, Name: name, Default: true, Up: d.up, Show: d.show, Done: d.done})
}

// cloudDemo is a running demo.
type cloudDemo struct {
	*lab.Lab
	w   io.Writer
	bin string // directory of the built programs

	pods map[string]running // by name

	part  time.Time // when the current part began
	times string    // of the finished parts, a line each
}

// up brings the lab up.
func (d *cloudDemo) up(ctx context.Context, o lab.Options) (*lab.Lab, error) {
	var err error
	if d.bin, err = filepath.Abs(o.BinDir); err != nil {
		return nil, err
	}

	o.BinDir, o.Nodes, o.VMs, o.Cloud, o.Pods = d.bin, 2, 2, true, true
	if d.Lab, err = lab.Up(ctx, o); err != nil {
		return nil, err
	}

	d.took("the lab")

	return d.Lab, nil
}

// done returns the times of all parts.
func (d *cloudDemo) done() string {
	d.took("taking down")
	return d.times
}

// took records the time of the part that ends now.
func (d *cloudDemo) took(part string) {
	now := time.Now()
	d.times += fmt.Sprintf("%-28s %5.1f s\n", part, now.Sub(d.part).Seconds())
	d.part = now
}

// show creates pods, sends traffic on every path, and does so again without the cloud's control
// plane. It ends with a fault that the controller reports.
func (d *cloudDemo) show(ctx context.Context, w io.Writer) error {
	d.w = w
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

	if err := d.showOutage(ctx); err != nil {
		return err
	}

	return d.showFault(ctx)
}

// controlPlane are the processes of the cloud that no pod needs.
var controlPlane = []string{
	"neutron-server", "keystone", "mariadbd", "central-ovn-northd", "central-ovnnb_db", "central-ovnsb_db",
}

// showOutage stops the control plane of the cloud, and starts it again after a new pod has had
// traffic on every path.
func (d *cloudDemo) showOutage(ctx context.Context) error {
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

	for _, name := range slices.Backward(controlPlane) {
		if err := d.StartProcess(name); err != nil {
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
func (d *cloudDemo) showPorts(ctx context.Context) error {
	for _, command := range [][]string{
		{"vm1", "ovnkube", "underlay", "pool"},
		{"cloud", "openstack", "port", "list", "--network", "k8s-vm1", "-c", "Name", "-c", "Fixed IP Addresses"},
	} {
		fmt.Fprintf(d.w, "\n%s:\n", strings.Join(command, " "))

		out, err := d.Typed(ctx, command[0], command[1:]...)
		if err != nil {
			return err
		}

		fmt.Fprint(d.w, out)
	}

	return nil
}
