// Command ovnkube is OVN for Kubernetes with an eBPF gateway: the controller,
// the node agent and the tools, one binary with several roles.
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
	"strings"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
)

// version is set by the build (-ldflags -X).
var version = "dev"

func main() {
	args := invoked(os.Args)
	if len(args) > 0 && args[0] == controllerRole {
		daemon.CoarseTimers()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(run(ctx, args, os.Stdout, os.Stderr), os.Stderr)
	stop()
	os.Exit(code)
}

// invoked are the arguments of ovnkube that argv stands for: a command of the
// first generation is called by its own name, a link to ovnkube.
func invoked(argv []string) []string {
	args := argv[1:]
	if name := filepath.Base(argv[0]); strings.HasPrefix(name, firstPrefix) {
		args = append([]string{name}, args...)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], firstPrefix) {
		return daemon.Args(args)
	}
	return args
}

const (
	firstPrefix    = "ovn-k8s-"
	controllerRole = "controller"
)

// run chooses the role by the first argument and runs it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	env := &environment{stdout: stdout, stderr: stderr}
	return root().run(ctx, "", args, env)
}

// exitCode reports err in one line, also when it is several. 0: success or help was asked for; the
// code of a command that lab exec ran; else 1.
func exitCode(err error, stderr io.Writer) int {
	var status exitStatus
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(stderr, "ovnkube:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}

// exitStatus is a child's exit status that becomes ours, with nothing printed.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

const controllerDetail = `It needs the API server, and OVN's Northbound and Southbound databases. Of several controllers one leads.
It serves /metrics, /healthz and /readyz on ` + controllerMetrics + `.

  ovnkube controller --kubeconfig /etc/kubernetes/admin.conf --nb-address tcp:192.0.2.1:6641 --sb-address tcp:192.0.2.1:6642`

const agentDetail = `It needs root, the API server, and this node's Open vSwitch and ovn-controller. One agent runs on a node.
When it ends, connections go on. It serves a status page, /metrics, /healthz and /readyz on ` + agentMetrics + `.

  ovnkube agent --node-name node1 --kubeconfig /etc/kubernetes/admin.conf --sb-address tcp:192.0.2.1:6642`

func root() *command {
	return &command{
		summary: "OVN as the control plane of Kubernetes networking, eBPF at the gateway.",
		setup:   classicCommand,
		children: []*command{
			{name: controllerRole, group: groupRun, summary: "keep OVN's Northbound database equal to the cluster", detail: controllerDetail, setup: controllerCommand},
			{name: "agent", group: groupRun, summary: "run this node: OVS settings, eBPF gateway, pods' interfaces", detail: agentDetail, setup: agentCommand},
			{name: "gateway", group: groupLook, summary: "counters, explain, top, monitor: what this node's gateway decides", children: []*command{
				{name: "counters", summary: "print what passed, by port, direction and reason", detail: countersDetail, setup: countersCommand},
				{name: "explain", arguments: "[PROTOCOL SOURCE DESTINATION]", summary: "say who gets a packet, and why", detail: explainDetail, setup: explainCommand},
				{name: "top", summary: "show the busiest flows and Services", detail: topDetail, setup: topCommand},
				{name: "monitor", summary: "show live decisions, packet by packet", detail: monitorDetail, setup: monitorCommand},
			}},
			{
				name: "status", group: groupLook, summary: "whether this node's gateway is right, what is not, and what to do", setup: statusCommand,
				detail: `It looks at the node itself and works when the agent is dead. Exit status: 0 right; 2 degraded: traffic
goes on, something is missing; 3 broken: traffic does not go where it should; 1 it could not look.`,
			},
			nodeCommands(),
			benchCommands(),
			configCommands(),
			overlayCommands(),
			watcherCommand(),
			helperCommand(),
			utilCommands(),
			labCommands(),
			{name: watchdogCommand, hidden: true, summary: "put a NIC back when moving its addresses fails; started by the mover", setup: watchdogSetup},
			{name: "version", group: groupLook, summary: "print the version", setup: versionCommand},
		},
	}
}
