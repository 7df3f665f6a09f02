// Command ovnlab runs a test cluster on this machine: real OVN, several nodes, pods (docs/lab.md).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

func main() {
	commandline.Main("ovnlab", os.Args[1:], run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return commandline.Run(ctx, root(), args, stdout, stderr)
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:     "ovnlab",
		Version: version.String(),
		Short:   "a test cluster on this machine: real OVN, several nodes, pods (docs/lab.md)",
		Long: `A lab has a fabric with OVN's databases and northd, nodes with their own Open vSwitch
and ovn-controller, and an outside host. With --cluster it also has a real API server,
scheduler and controller manager, our controller, our agent on every node, and a stand-in
for kubelet that runs pods. It pulls no images: a container's command runs where this machine
has the program, else a server that answers HTTP with the pod's name and the client's address.

  ovnlab up --nodes 2 --cluster
  ovnlab exec central kubectl get nodes
  ovnlab exec node1 ovnkube status
  ovnlab down

Labs with different --name run side by side.`,
	}
	c.AddCommand(upCommand(), statusCommand(), execCommand(), stopCommand(), startCommand(), downCommand(),
		trafficCommand(), kubeletCommand())
	commandline.Prepare(c)

	return c
}

// labFlags select a lab.
type labFlags struct{ dir, name string }

// labVariable holds the default of --name.
const labVariable = "OVNKUBE_LAB"

func newLabFlags(f *pflag.FlagSet) *labFlags {
	l := &labFlags{}
	f.StringVar(&l.name, "name", os.Getenv(labVariable),
		"`name` of the lab, for several side by side; default: $"+labVariable+", or the lab without a name")
	f.StringVar(&l.dir, "dir", "",
		"`directory` of the lab's databases, sockets and logs; default: that of its name")

	return l
}

// location returns the lab's directory, and its name there.
func (l *labFlags) location() (dir, name string) {
	dir, name = lab.Named(l.name)
	if l.dir != "" {
		dir = l.dir
	}

	return dir, name
}

// selection returns the flags that select the same lab in another command.
func (l *labFlags) selection() string {
	var flags []string
	if l.name != os.Getenv(labVariable) {
		flags = append(flags, "--name "+l.name)
	}

	if l.dir != "" {
		flags = append(flags, "--dir "+l.dir)
	}

	return strings.Join(flags, " ")
}

func (l *labFlags) open() (*lab.Lab, error) {
	dir, _ := l.location()
	return lab.Open(dir)
}

func upCommand() *cobra.Command {
	c := &cobra.Command{Use: "up", Short: "start a lab", Args: cobra.NoArgs}
	options := lab.Options{}
	f := c.Flags()
	selected := newLabFlags(f)
	f.IntVar(&options.Nodes, "nodes", 2, "`number` of nodes, 1 to 50; with --vms, of hypervisors")
	f.IntVar(&options.VMs, "vms", 0, "`number` of VMs, 0 to 8: they are the nodes of Kubernetes, in underlay mode, beside one VM that is none")
	f.BoolVar(&options.Cloud, "cloud", false, "with --vms: also Keystone and Neutron of OpenStack, which make the network (installed once below the cache, five minutes)")
	f.BoolVar(&options.Kube, "kube", false, "also a real API server (built once, about five minutes)")
	f.BoolVar(&options.Cluster, "cluster", false, "also the controller and agents, and what --pods enables; implies --kube")
	pods := f.Bool("pods", true, "with --cluster: also the real scheduler, controller manager and kubectl (built once, a minute more), and a stand-in kubelet per node, which runs pods")
	f.StringVar(&options.Datapath, "datapath", "", "Open vSwitch datapath `type`, system or netdev; default: system if the kernel supports it")
	f.StringVar(&options.CacheDir, "cache", kube.CacheDir(), "`directory` for what is built once")

	c.RunE = func(c *cobra.Command, args []string) error {
		if options.Nodes < 1 || options.Nodes > 50 {
			return fmt.Errorf("--nodes %d is not 1 to 50", options.Nodes)
		}

		if options.VMs < 0 || options.VMs > 8 {
			return fmt.Errorf("--vms %d is not 0 to 8", options.VMs)
		}

		program, err := os.Executable()
		if err != nil {
			return err
		}

		options.Dir, options.Name = selected.location()
		options.Pods = options.Cluster && *pods
		options.BinDir, options.Progress = filepath.Dir(program), c.ErrOrStderr()

		l, err := lab.Up(c.Context(), options)
		if err != nil {
			return err
		}

		l.Next(c.OutOrStdout(), os.Args[0], selected.selection())

		return nil
	}

	return c
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "list the processes and their states", Args: cobra.NoArgs}
	selected := newLabFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := selected.open()
		if err != nil {
			return err
		}

		return l.Status(c.Context(), c.OutOrStdout())
	}

	return c
}

func execCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec [flags] HOST COMMAND [ARGUMENT...]",
		Short: "run a command in a node's, the outside host's or a pod's network namespace",
		Long: `HOST is node1, node2, …, ext, central or pod:NAMESPACE/NAME. With --vms, also vm1, vm2, … and plain.
With --cloud, also cloud, which has OpenStack's client; its clouds.yaml has the entries k8s (of the
project, the default) and admin (of the operator). The tools of OVS and OVN find the host's own
daemons, and those of ovnkube the agent of the node:

  ovnlab exec node1 ovnkube status
  ovnlab exec node1 ovnkube gateway counters
  ovnlab exec central kubectl get pods -o wide
  ovnlab exec pod:default/client curl http://10.244.1.3/
  ovnlab exec cloud openstack port list`,
	}
	commandline.StopAtArgument(c)
	selected := newLabFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) < 2 {
			return errors.New("give a host and a command, like: ovnlab exec node1 ip address")
		}

		l, err := selected.open()
		if err != nil {
			return err
		}

		cmd, err := l.Login(c.Context(), args[0], args[1:]...)
		if err != nil {
			return err
		}

		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.OutOrStdout(), c.ErrOrStderr()

		err = cmd.Run()

		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return commandline.ExitStatus(exit.ExitCode())
		}

		return err
	}

	return c
}

func stopCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stop PROCESS",
		Short: "stop or kill a process of the lab, as ovnlab status names it",
	}
	selected := newLabFlags(c.Flags())
	kill := c.Flags().Bool("kill", false, "kill it with SIGKILL, like a crash")
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := openForArgument(selected, args)
		if err != nil {
			return err
		}

		return l.StopProcess(args[0], *kill)
	}

	return c
}

func startCommand() *cobra.Command {
	c := &cobra.Command{Use: "start PROCESS", Short: "restart a process with the same arguments"}
	selected := newLabFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := openForArgument(selected, args)
		if err != nil {
			return err
		}

		return l.StartProcess(args[0])
	}

	return c
}

// openForArgument opens the lab for a command with one argument, a process or a node.
func openForArgument(selected *labFlags, args []string) (*lab.Lab, error) {
	if len(args) != 1 {
		return nil, errors.New("name a process, as 'ovnlab status' does")
	}

	return selected.open()
}

func downCommand() *cobra.Command {
	c := &cobra.Command{Use: "down", Short: "remove the lab, including leftovers", Args: cobra.NoArgs}
	selected := newLabFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := selected.open()
		if errors.Is(err, os.ErrNotExist) {
			return nil // already down
		}

		if err != nil {
			return err
		}

		return l.Down(c.Context())
	}

	return c
}

func kubeletCommand() *cobra.Command {
	c := &cobra.Command{Use: "kubelet NODE", Short: "the stand-in for kubelet of a node", Hidden: true}
	selected := newLabFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		l, err := openForArgument(selected, args)
		if err != nil {
			return err
		}

		return l.RunKubelet(c.Context(), args[0], slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)))
	}

	return c
}

func trafficCommand() *cobra.Command {
	c := &cobra.Command{
		Use:                "traffic",
		Short:              "the servers and clients that the lab's tests use",
		Hidden:             true,
		DisableFlagParsing: true,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if code := traffic.Main(args, c.OutOrStdout()); code != 0 {
			return commandline.ExitStatus(code)
		}

		return nil
	}

	return c
}
