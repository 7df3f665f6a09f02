package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

func labCommands() *command {
	return &command{
		name: "lab", group: groupTry, summary: "a cluster to try on this machine: real OVN, several nodes, pods (docs/lab.md)",
		detail: `A lab has a fabric with OVN's databases and northd, nodes with their own Open vSwitch
and ovn-controller, and an outside host. With --cluster it also has a real API server,
scheduler and controller manager, our controller, our agent on every node, and a stand-in
for kubelet that runs pods. It pulls no images: a container's command runs where this machine
has the program, else a server that answers HTTP with the pod's name and the client's address.

  ovnkube lab up --nodes 2 --cluster
  ovnkube lab exec central kubectl get nodes
  ovnkube lab exec node1 ovnkube status
  ovnkube lab down

Labs with different --name run side by side.`,
		children: []*command{
			{name: "up", summary: "start a lab", setup: labUpCommand},
			{name: "status", summary: "what runs, and what does not", setup: labStatusCommand},
			{
				name: "exec", summary: "run a command in a node's, the outside host's or a pod's network namespace",
				arguments: "HOST COMMAND [ARGUMENT...]", setup: labExecCommand,
				detail: `HOST is node1, node2, …, ext, central or pod:NAMESPACE/NAME. The tools of OVS and OVN find the host's own
daemons, and those of ovnkube the agent of the node:

  ovnkube lab exec node1 ovnkube status
  ovnkube lab exec node1 ovnkube gateway counters
  ovnkube lab exec central kubectl get pods -o wide
  ovnkube lab exec pod:default/client curl http://10.244.1.3/`,
			},
			{name: "stop", arguments: "PROCESS", summary: "stop or kill a process of the lab, as lab status names it", setup: labStopCommand},
			{name: "start", arguments: "PROCESS", summary: "start it again, with the arguments it had", setup: labStartCommand},
			{name: "down", summary: "take the lab down, whatever is left of it", setup: labDownCommand},
			{name: "traffic", hidden: true, summary: "the servers and clients that the lab's tests use", setup: labTrafficCommand},
			{name: "kubelet", hidden: true, arguments: "NODE", summary: "the stand-in for kubelet of a node", setup: labKubeletCommand},
		},
	}
}

// labFlags say which lab is meant.
type labFlags struct{ dir, name string }

// labVariable has the name of the lab that is meant without --name.
const labVariable = "OVNKUBE_LAB"

func newLabFlags(f *flag.FlagSet) *labFlags {
	l := &labFlags{}
	f.StringVar(&l.name, "name", os.Getenv(labVariable), "`name` of the lab, for several side by side; default: $"+labVariable+", or the lab without a name")
	f.StringVar(&l.dir, "dir", "", "`directory` of the lab's databases, sockets and logs; default: that of its name")
	return l
}

// place returns the lab's directory, and its name there.
func (l *labFlags) place() (dir, name string) {
	dir, name = lab.Named(l.name)
	if l.dir != "" {
		dir = l.dir
	}
	return dir, name
}

// flags are those that name the lab in another command, as they were given.
func (l *labFlags) flags() string {
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
	dir, _ := l.place()
	return lab.Open(dir)
}

func labUpCommand(f *flag.FlagSet) action {
	options := lab.Options{}
	which := newLabFlags(f)
	f.IntVar(&options.Nodes, "nodes", 2, "`number` of nodes, 1 to 50")
	f.BoolVar(&options.Kube, "kube", false, "also a real API server (built once, about five minutes)")
	f.BoolVar(&options.Cluster, "cluster", false, "also our controller and agents, and what --pods says; implies --kube")
	pods := f.Bool("pods", true, "with --cluster: also the real scheduler, controller manager and kubectl (built once, a minute more), and a stand-in kubelet per node, which runs pods")
	f.StringVar(&options.Datapath, "datapath", "", "Open vSwitch datapath `type`, system or netdev; default: system where the kernel has it")
	f.StringVar(&options.CacheDir, "cache", kube.CacheDir(), "`directory` for what is built once")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if options.Nodes < 1 || options.Nodes > 50 {
			return fmt.Errorf("--nodes %d is not 1 to 50", options.Nodes)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		options.Dir, options.Name = which.place()
		options.Pods = options.Cluster && *pods
		options.BinDir, options.Progress = filepath.Dir(self), env.stderr
		l, err := lab.Up(ctx, options)
		if err != nil {
			return err
		}
		l.Next(env.stdout, os.Args[0]+" lab", which.flags())
		return nil
	}
}

func labStatusCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		l, err := which.open()
		if err != nil {
			return err
		}
		return l.Status(ctx, env.stdout)
	}
}

func labExecCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	return func(ctx context.Context, args []string, env *environment) error {
		if len(args) < 2 {
			return errors.New("give a host and a command, like: ovnkube lab exec node1 ip address")
		}
		l, err := which.open()
		if err != nil {
			return err
		}
		cmd, err := l.Login(ctx, args[0], args[1:]...)
		if err != nil {
			return err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, env.stdout, env.stderr
		var failed *exec.ExitError
		if err := cmd.Run(); errors.As(err, &failed) {
			return exitStatus(failed.ExitCode())
		} else if err != nil {
			return err
		}
		return nil
	}
}

func labStopCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	kill := f.Bool("kill", false, "kill it at once (SIGKILL), as a crash does")
	return func(_ context.Context, args []string, _ *environment) error {
		l, err := one(which, args)
		if err != nil {
			return err
		}
		return l.StopProcess(args[0], *kill)
	}
}

func labStartCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	return func(_ context.Context, args []string, _ *environment) error {
		l, err := one(which, args)
		if err != nil {
			return err
		}
		return l.StartProcess(args[0])
	}
}

// one opens the lab if there is one argument, a process of it.
func one(which *labFlags, args []string) (*lab.Lab, error) {
	if len(args) != 1 {
		return nil, errors.New("name a process, as 'ovnkube lab status' does")
	}
	return which.open()
}

func labDownCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	return func(ctx context.Context, args []string, _ *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		l, err := which.open()
		if errors.Is(err, os.ErrNotExist) {
			return nil // already down
		}
		if err != nil {
			return err
		}
		return l.Down(ctx)
	}
}

func labKubeletCommand(f *flag.FlagSet) action {
	which := newLabFlags(f)
	return func(ctx context.Context, args []string, env *environment) error {
		l, err := one(which, args)
		if err != nil {
			return err
		}
		return l.RunKubelet(ctx, args[0], slog.New(slog.NewTextHandler(env.stderr, nil)))
	}
}

func labTrafficCommand(*flag.FlagSet) action {
	return func(_ context.Context, args []string, env *environment) error {
		if code := traffic.Main(args, env.stdout); code != 0 {
			return exitStatus(code)
		}
		return nil
	}
}
