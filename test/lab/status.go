package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// Status writes the lab's processes and whether each one runs. Its error names those that do not.
func (l *Lab) Status(_ context.Context, w io.Writer) error {
	size := fmt.Sprintf("%d nodes", l.opts.Nodes)
	if l.opts.VMs > 0 {
		size = fmt.Sprintf("%d hypervisors, %d VMs and plain", l.opts.Nodes, l.opts.VMs)
	}

	fmt.Fprintf(w, "lab in %s: %s, %s datapath\n\n", l.opts.Dir, size, l.opts.Datapath)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tNETNS\tADDRESSES")
	fmt.Fprintf(t, "central\t%s\t%s %s\n", l.fabric(), CentralIP4, CentralIP6)
	fmt.Fprintf(t, "ext\t%s\t%s %s %s %s\n", l.ext(), ExtIP4, ExtIP6, BehindIP4, BehindIP6)

	for _, n := range l.Nodes() {
		fmt.Fprintf(t, "%s\t%s\t%s %s\n", n.Name, n.Netns, n.IP4, n.IP6)
	}

	for _, v := range l.machines() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Name, v.Netns, v.IP4)
	}

	pods, err := netns.List(l.opts.Name + "-p-")
	if err != nil {
		return err
	}

	for _, p := range pods {
		fmt.Fprintf(t, "pod\t%s\t\n", p)
	}

	fmt.Fprintln(t, "\nPROCESS\tPID\tSTATE")

	var dead []string

	for _, pattern := range []string{"pid/*.pid", "kube/*.pid"} {
		records, err := filepath.Glob(l.path(pattern))
		if err != nil {
			return err
		}

		for _, record := range records {
			name := strings.TrimSuffix(filepath.Base(record), ".pid")

			p, err := process.Load(record)
			if err != nil {
				return err
			}

			state := "running"

			if !p.Alive() {
				lines := strings.Split(process.Tail(l.path("log/"+name+".log")), " | ")
				state = "ended: " + lines[len(lines)-1]

				dead = append(dead, name)
			}

			fmt.Fprintf(t, "%s\t%d\t%s\n", name, p.PID, state)
		}
	}

	if err := t.Flush(); err != nil {
		return err
	}

	if len(dead) > 0 {
		return fmt.Errorf("lab in %s: not running: %s", l.opts.Dir, strings.Join(dead, ", "))
	}

	return nil
}

// lastWords shows the end of each program's log, before Down removes it.
func (l *Lab) lastWords() {
	logs, _ := filepath.Glob(l.path("log/*.log")) // the pattern is good
	for _, log := range logs {
		if text := process.Tail(log); text != "" {
			l.step("%s ended with: %s", strings.TrimSuffix(filepath.Base(log), ".log"), text)
		}
	}
}
