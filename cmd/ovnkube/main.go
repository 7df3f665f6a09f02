// Command ovnkube is OVN for Kubernetes with an eBPF gateway: the controller, the node agent and
// the tools, one binary with several roles.
//
// To read it, begin with tree: it declares all commands, each with the function that declares its
// flags and returns its action. Settings of controller and agent, which are also keys of the
// configuration file, are in the tables of clusterFlags, controllerFlags and agentFlags.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

func main() {
	args := commandArguments(os.Args)
	if len(args) > 0 && args[0] == controllerRole {
		daemon.CoarseTimers()
	}

	commandline.Main("ovnkube", args, run)
}

// commandArguments returns the arguments of ovnkube for argv. The commands of ovn-kubernetes' first
// releases, such as ovn-k8s-overlay, are links to ovnkube. Their name becomes the first argument.
func commandArguments(argv []string) []string {
	args := argv[1:]
	if name := filepath.Base(argv[0]); strings.HasPrefix(name, firstReleasesPrefix) {
		args = append([]string{name}, args...)
	}

	return args
}

// movedPrograms maps former commands of ovnkube to the programs that replaced them. It only
// improves the error message.
var movedPrograms = map[string]string{"lab": "ovnlab", "bench": "ovnbench"}

const (
	firstReleasesPrefix = "ovn-k8s-"
	controllerRole      = "controller"
)

// run runs the command that args name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && movedPrograms[args[0]] != "" {
		command := append([]string{movedPrograms[args[0]]}, args[1:]...)
		fmt.Fprintf(stderr, "ovnkube: %s is a separate program; type: %s\n", args[0], strings.Join(command, " "))

		return exitStatus(2)
	}

	return commandline.Run(ctx, root(), args, stdout, stderr)
}

const controllerDetail = `It needs the API server, and OVN's Northbound and Southbound databases. Of several controllers one leads.
It serves /metrics, /healthz and /readyz on ` + controllerMetrics + `.

  ovnkube controller --kubeconfig /etc/kubernetes/admin.conf --nb-address tcp:192.0.2.1:6641 --sb-address tcp:192.0.2.1:6642

In underlay mode (--mode underlay) it makes Neutron ports for the pods of each node. It needs OpenStack's API
instead of OVN's databases: --cloud, --router-id, --subnet-pool and --security-groups.`

const agentDetail = `It needs root, the API server, and this node's Open vSwitch and ovn-controller. One agent runs on a node.
Connections continue when it ends. It serves a status page, /metrics, /healthz and /readyz on ` + agentMetrics + `.

  ovnkube agent --node-name node1 --kubeconfig /etc/kubernetes/admin.conf --sb-address tcp:192.0.2.1:6642

In underlay mode (--mode underlay) the node is a VM, and needs neither Open vSwitch nor ovn-controller.`

// root returns the whole command line of ovnkube, with its help.
func root() *cobra.Command {
	c := tree().cobra()
	c.Version = version.String()

	for _, group := range []string{groupRun, groupLook, groupFirstReleases} {
		c.AddGroup(&cobra.Group{ID: group, Title: group + ":"})
	}

	c.AddCommand(topics()...)
	commandline.Prepare(c)
	shortenHelp(c)

	return c
}

// tree declares all commands.
func tree() *command {
	return &command{
		name:    "ovnkube",
		summary: "OVN as the control plane of Kubernetes networking, eBPF at the gateway.",
		setup:   roleFlagsCommand,
		children: []*command{
			{
				name:    controllerRole,
				group:   groupRun,
				summary: "keep OVN's Northbound database equal to the cluster",
				detail:  controllerDetail,
				setup:   controllerCommand,
			},
			{
				name:    "agent",
				group:   groupRun,
				summary: "run this node: OVS settings, eBPF gateway, pods' interfaces",
				detail:  agentDetail,
				setup:   agentCommand,
			},
			{
				name:    "gateway",
				group:   groupLook,
				summary: "counters, explain, top, monitor: what this node's gateway decides",
				children: []*command{
					{
						name:    "counters",
						summary: "print what passed, by port, direction and reason",
						detail:  countersDetail,
						setup:   countersCommand,
					},
					{
						name:      "explain",
						arguments: "[PROTOCOL SOURCE DESTINATION]",
						summary:   "show who gets a packet, and why",
						detail:    explainDetail,
						setup:     explainCommand,
					},
					{
						name:    "shortcuts",
						summary: "list, count or end connections that bypass OVS",
						detail:  shortcutsDetail,
						setup:   shortcutsCommand,
					},
					{
						name:    "top",
						summary: "show the busiest flows and Services",
						detail:  topDetail,
						setup:   topCommand,
					},
					{
						name:    "monitor",
						summary: "show live decisions, packet by packet",
						detail:  monitorDetail,
						setup:   monitorCommand,
					},
				},
			},
			{
				name:    "status",
				group:   groupLook,
				summary: "check this node's gateway, with advice for each fault",
				setup:   statusCommand,
				detail: `It inspects the node itself and works without the agent. Exit status: 0 right; 2 degraded: traffic flows,
something is missing; 3 broken: traffic is interrupted; 1 the check failed.`,
			},
			nodeCommands(),
			containerCommands(),
			configCommands(),
			overlayCommands(),
			underlaySetupCommands(),
			underlayCommands(),
			watcherCommand(),
			helperCommand(),
			utilCommands(),
			{
				name:      watchdogCommand,
				hidden:    true,
				arguments: "DIR NIC SECONDS",
				summary:   "restore a NIC when moving its addresses fails; started by the mover",
				setup:     setupWatchdog,
			},
			{
				name:    "version",
				group:   groupLook,
				summary: "print version, commit and date of this build",
				setup:   versionCommand,
			},
		},
	}
}
