package main

import (
	"context"
	"flag"
	"log/slog"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// watchdogCommand runs the mover's watchdog process. Only the mover calls it.
const watchdogCommand = "nic-watchdog"

func watchdogSetup(f *flag.FlagSet) action {
	ovsdb := f.String("ovsdb", "unix:/run/openvswitch/db.sock", "`address` of the node's Open vSwitch database")
	datapath := f.String("datapath", "", "Open vSwitch datapath `type` of the bridge")
	pinDir := f.String("pin-dir", "/sys/fs/bpf/ovn-ebpf", "`directory` of the pinned eBPF programs and maps")
	return func(ctx context.Context, args []string, env *environment) error {
		dial := func(ctx context.Context) (nicbridge.Switch, error) {
			c, err := ovs.Dial(ctx, *ovsdb)
			if err != nil {
				return gateway.LostSwitch(err, *pinDir), nil //nolint:nilerror // its methods return it
			}
			return gateway.HostSwitch(c, *datapath, *pinDir), nil
		}
		return nicbridge.Watch(ctx, args, dial, slog.New(slog.NewTextHandler(env.stderr, nil)))
	}
}
