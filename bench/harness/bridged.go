package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// bridged is this project's gateway in layout bridged: the uplink is a port of breth0, which has
// the node's addresses. The programs redirect the host's packets past OVS.
type bridged struct{ ebpf }

func (b *bridged) traits() traits {
	name := bench.Bridged
	if b.shortcuts {
		name = bench.ShortcutsBridged
	}

	return traits{
		name: name, layout: "bridged",
		tests: gatewayTests(),
		ipv6:  gatewayTests6(),
	}
}

// OpenFlow port numbers on breth0.
const uplinkPort, patchPort = 1, 2

func (b *bridged) setup(ctx context.Context) error {
	b.layout = verdict.Bridged
	if err := b.ovs.secureHost(ctx); err != nil {
		return err
	}

	var flows string
	for _, f := range openflow.Static(openflow.StaticInput{Layout: verdict.Bridged, Ports: openflow.Ports{Uplink: uplinkPort, Patch: patchPort}}) {
		flows += f + "\n"
	}

	if err := b.ovs.flows(ctx, "breth0", flows); err != nil {
		return err
	}

	if err := inNetns(nodeNS, b.attach); err != nil {
		return err
	}

	if err := b.attachPod(); err != nil {
		return err
	}

	return b.checkAttached()
}

// bridgedHost creates breth0 with the uplink as a port and the node's addresses, and br-int beside
// it. settings are further columns of breth0's row, for ovs-vsctl. snatPorts is as in integration.
func (o ovs) bridgedHost(ctx context.Context, settings, snatPorts string) error {
	if err := o.start(ctx); err != nil {
		return err
	}

	if err := o.vsctl(ctx, fmt.Sprintf(`add-br breth0 -- set bridge breth0 %s other_config:hwaddr=%s
		-- add-port breth0 eth0 -- set interface eth0 ofport_request=%d`, settings, nodeMAC, uplinkPort)); err != nil {
		return err
	}

	if err := hostAddresses(ctx, "breth0"); err != nil {
		return err
	}

	return o.integration(ctx, snatPorts, "breth0")
}

// secureHost is bridgedHost for our own flows: breth0 forwards nothing without them.
func (o ovs) secureHost(ctx context.Context) error {
	if err := o.bridgedHost(ctx, "fail-mode=secure", ":49152-65535"); err != nil {
		return err
	}

	ports, err := o.ports(ctx)
	if err != nil {
		return err
	}

	if slices.Sort(ports); !slices.Equal(ports, []string{"eth0", "patch-ext"}) {
		return fmt.Errorf("check: breth0 has ports %v, want the uplink and the patch", ports)
	}

	return nil
}
