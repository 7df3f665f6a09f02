package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

func utilCommands() *command {
	return &command{
		name: "ovn-k8s-util", group: groupFirstReleases, summary: "move a NIC into an OVS bridge, and back",
		children: []*command{
			{
				name:      "nics-to-bridge",
				arguments: "NIC...",
				setup:     nicsToBridge,
				summary:   "make each NIC a port of a new OVS bridge, brNIC, with its addresses and routes",
				detail: `A watchdog restores everything if this process dies or the gateways do not answer. An agent with
--gateway-layout=bridged moves its uplink in the same way, and uses a bridge that this command has made. If an
agent runs, it waits until the command ends. Then an agent of layout direct undoes the move, and an agent of a
node without a gateway leaves it unchanged.`,
			},
			{
				name:      "bridges-to-nics",
				arguments: "BRIDGE...",
				setup:     bridgesToNICs,
				summary:   "undo nics-to-bridge: restore each NIC and delete its bridge",
				detail:    "Stop an agent of layout bridged first, or start it with another layout, which undoes it as well: it would move the addresses again.",
			},
		},
	}
}

// watchdogArgs returns the command line of the watchdog, a process that restores a NIC if the
// process that moves its addresses dies.
func (a *agentFlags) watchdogArgs() []string {
	return []string{
		"/proc/self/exe", watchdogCommand,
		"--ovsdb", a.ovsdb, "--datapath", a.datapath, "--pin-dir", a.pinDir,
	}
}

// mover moves the addresses and routes of NICs to bridges, or back. It holds the settings of both
// commands.
type mover struct {
	*settings
	force bool // also move a NIC that another program configures
	log   *slog.Logger
	ovs   *ovs.Client
}

// newMover declares the flags of both commands. The action runs do for each argument until one
// fails; argument is the kind of the arguments, for the error if there are none.
func newMover(
	f *flag.FlagSet,
	argument string,
	do func(m *mover, ctx context.Context, device string) error,
) (*mover, action) {
	m := &mover{settings: newSettings("")}
	m.declareConfigFile(f)
	m.DeclareSome(f, "ovsdb", "datapath", "run-dir", "pin-dir", "logfile", "loglevel")

	return m, func(ctx context.Context, args []string, env *environment) error {
		if len(args) == 0 {
			return fmt.Errorf("name a %s", argument)
		}

		var err error
		if m.log, err = m.load(ctx, env); err != nil {
			return err
		}

		if m.ovs, err = ovs.Dial(ctx, m.agent.ovsdb); err != nil {
			return err
		}
		defer m.ovs.Close()

		for _, arg := range args {
			if err := do(m, ctx, arg); err != nil {
				return err
			}
		}

		return nil
	}
}

func (m *mover) options(nic, bridge string) nicbridge.Options {
	return nicbridge.Options{
		NIC:      nic,
		Bridge:   bridge,
		Dir:      m.agent.runDir,
		Watchdog: m.agent.watchdogArgs(),
		Force:    m.force,
		Log:      m.log,
		Switch:   gateway.HostSwitch(m.ovs, m.agent.datapath, m.agent.pinDir),
	}
}

func nicsToBridge(f *flag.FlagSet) action {
	m, act := newMover(f, "NIC", func(m *mover, ctx context.Context, nic string) error {
		bridge := "br" + nic

		host := ovs.HostSwitch{Client: m.ovs, DatapathType: m.agent.datapath}
		if err := host.CheckDatapath(ctx, bridge, link.HasGenericFamily); err != nil {
			return fmt.Errorf("move %s to %s: %w", nic, bridge, m.located(err))
		}

		options := m.options(nic, bridge)
		options.Asked = true

		return nicbridge.Move(ctx, options)
	})
	f.BoolVar(&m.force, "force", false, "allow a NIC configured by a DHCP client or a network manager")

	return act
}

func bridgesToNICs(f *flag.FlagSet) action {
	_, act := newMover(f, "bridge", func(m *mover, ctx context.Context, bridge string) error {
		nic := strings.TrimPrefix(bridge, "br")

		snapshot, err := nicbridge.Load(m.agent.runDir, nic)

		isOtherBridge := err == nil && snapshot.Bridge != bridge
		if isOtherBridge || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was not made by nics-to-bridge since the node booted: the settings of %s are not recorded",
				bridge, nic)
		}

		if err != nil {
			return err
		}

		return nicbridge.Restore(ctx, m.options(nic, ""))
	})

	return act
}

// watchdogCommand is the name of the command that runs the watchdog. Only the process that moves a
// NIC starts it, with the flags of watchdogArgs and the arguments that nicbridge adds.
const watchdogCommand = "nic-watchdog"

func setupWatchdog(f *flag.FlagSet) action {
	ovsdb := f.String("ovsdb", "unix:/run/openvswitch/db.sock",
		"`address` of the node's Open vSwitch database")
	datapath := f.String("datapath", "", "Open vSwitch datapath `type` of the bridge")
	pinDir := f.String("pin-dir", "/sys/fs/bpf/ovn-ebpf", "`directory` of the pinned eBPF programs and maps")

	return func(ctx context.Context, args []string, env *environment) error {
		dial := func(ctx context.Context) (nicbridge.Switch, error) {
			c, err := ovs.Dial(ctx, *ovsdb)
			if err != nil {
				return gateway.LostSwitch(err, *pinDir), nil //nolint:nilerror // the switch's methods return the error
			}

			return gateway.HostSwitch(c, *datapath, *pinDir), nil
		}

		return nicbridge.Watch(ctx, args, dial, env.log())
	}
}
