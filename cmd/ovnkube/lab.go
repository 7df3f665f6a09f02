package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

const labDir = "/run/ovn-ebpf-lab"

func labCommands() *command {
	return &command{
		name: "lab", summary: "real OVN with several nodes on this machine, in network namespaces",
		detail: `A lab has a fabric with OVN's databases and northd, nodes with their own Open vSwitch
and ovn-controller, and an outside host. With --cluster it also has a real API server,
our controller, and our agent on every node.

  ovnkube lab up --nodes 2 --cluster
  ovnkube lab exec node1 ip address
  ovnkube lab down`,
		children: []*command{
			{name: "up", summary: "start a lab", setup: labUpCommand},
			{name: "status", summary: "what runs, and what does not", setup: labStatusCommand},
			{
				name: "exec", summary: "run a command in a node's, the outside host's or a pod's network namespace",
				arguments: "HOST COMMAND [ARGUMENT...]", detail: "HOST is node1, node2, …, ext, central or pod:NAMESPACE/NAME.", setup: labExecCommand,
			},
			{name: "down", summary: "take the lab down, whatever is left of it", setup: labDownCommand},
			{name: "traffic", hidden: true, summary: "the servers and clients that the lab's tests use", setup: labTrafficCommand},
		},
	}
}

func dirFlag(f *flag.FlagSet) *string {
	return f.String("dir", labDir, "`directory` of the lab's databases, sockets and logs")
}

func labUpCommand(f *flag.FlagSet) action {
	options := lab.Options{}
	f.StringVar(&options.Dir, "dir", labDir, "`directory` of the lab's databases, sockets and logs")
	f.IntVar(&options.Nodes, "nodes", 2, "`number` of nodes, 1 to 50")
	f.BoolVar(&options.Kube, "kube", false, "also a real API server (built once, about five minutes)")
	f.BoolVar(&options.Cluster, "cluster", false, "also our controller and agents; implies --kube")
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
		options.BinDir, options.Progress = filepath.Dir(self), env.stderr
		_, err = lab.Up(ctx, options)
		return err
	}
}

func labStatusCommand(f *flag.FlagSet) action {
	dir := dirFlag(f)
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		l, err := lab.Open(*dir)
		if err != nil {
			return err
		}
		return l.Status(ctx, env.stdout)
	}
}

func labExecCommand(f *flag.FlagSet) action {
	dir := dirFlag(f)
	return func(ctx context.Context, args []string, env *environment) error {
		if len(args) < 2 {
			return errors.New("give a host and a command, like: ovnkube lab exec node1 ip address")
		}
		l, err := lab.Open(*dir)
		if err != nil {
			return err
		}
		cmd, err := l.Command(ctx, args[0], args[1:]...)
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

func labDownCommand(f *flag.FlagSet) action {
	dir := dirFlag(f)
	return func(ctx context.Context, args []string, _ *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		l, err := lab.Open(*dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil // already down
		}
		if err != nil {
			return err
		}
		return l.Down(ctx)
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
