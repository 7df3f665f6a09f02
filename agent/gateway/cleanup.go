package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// hooks are the names of the agent's programs at uplink and bridge, as pins and as clsact filters.
// bpf.IsPodHook matches those of the programs at pods' devices.
var hooks = [...]string{"uplink_ingress", "uplink_egress", "bridge_ingress", "bridge_egress"}

// Cleanup removes the gateway from the node. It removes, in this order:
//
//  1. the bridge mapping and OVN's patch ports, also if ovn-controller has ended
//  2. programs and pins
//  3. the host's configuration on the bridge
//  4. the bridge
//  5. reserved ports
//
// A bridge with the host's addresses is removed only if the agent moved the addresses there. A
// bridge that was found in that state stays, with its uplink. o may be nil when OVSDB is
// unreachable; then a host with its addresses on the bridge is left unchanged. A node that was
// taken over from ovn-kubernetes is restored instead. Cleanup continues after an error and returns
// all errors.
func Cleanup(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	if o == nil && (s.Layout == verdict.Bridged || addressesMoved(s) || nicOfMove(s.RunDir, s.Uplink) != "") {
		// If ovs-vswitchd is gone as well, only the programs carry the host's traffic.
		return fmt.Errorf("clean up gateway: the host's addresses are on an OVS bridge and OVSDB is unreachable: nothing was changed")
	}

	if record, found := loadTakeover(s.RunDir); found {
		return undoTakeover(ctx, record, s, o, log)
	}

	var errs []error
	if o != nil {
		errs = append(errs, o.SyncBridgeMapping(ctx, Network, ""), o.Disconnect(ctx, s.Bridge))
	}

	idle, err := openIdle(s, log)
	errs = append(errs, err, takeDown(idle), removeFilters())

	errs = append(errs, link.RemoveHairpin(s.Bridge, hostHairpin(bothFamilies, s)))

	if l, err := link.Get(s.Uplink); err == nil && s.Layout != verdict.Direct {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter, false))
	}

	switch {
	case o == nil: // the bridge stays
	case addressesMoved(s):
		move := moveOptions(s, o)
		move.Log = log
		errs = append(errs, nicbridge.Restore(ctx, move), o.RemoveBridge(ctx, s.Bridge))
	case s.Layout == verdict.Bridged:
		errs = append(errs, removeFlows(ctx, s, o))
	default:
		errs = append(errs, o.RemoveBridge(ctx, s.Bridge))
	}

	errs = append(errs, releasePorts(s.RunDir), releaseIdleConnections(s.RunDir), removeRunFiles(s.RunDir))

	return errors.Join(errs...)
}

// bothFamilies stands for a node with addresses of both families.
var bothFamilies = Node{Addresses: []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}}

// removeFlows removes the agent's flows from a bridge that the host depends on. One flow must carry
// the host's traffic afterwards: a foreign one, or a flow of the agent by which the bridge is a
// learning switch.
func removeFlows(ctx context.Context, s Settings, o *ovs.Client) error {
	if _, err := o.OFPorts(ctx, s.Bridge); errors.Is(err, ovs.ErrNotFound) {
		return nil
	}

	_, err := ovs.SyncBundle(ctx, s.OVSRunDir, s.Bridge, []string{"priority=0 actions=NORMAL"})
	if err == nil {
		return nil
	}

	// Probably, a foreign flow has the same table, priority and match. Otherwise, this fails as
	// well.
	_, err = ovs.SyncBundle(ctx, s.OVSRunDir, s.Bridge, nil)

	return err
}

// removeFilters removes all clsact filters of the agent. An agent that was killed between attaching
// and pinning leaves a filter without a pin, which takeDown does not find.
func removeFilters() error {
	ours := func(name string) bool { return slices.Contains(hooks[:], name) || bpf.IsPodHook(name) }
	filters, err := link.ClsactFilters(ours)
	errs := []error{err}

	for _, f := range filters {
		errs = append(errs, link.DetachClsact(f.Ifindex, f.Name, f.Egress))
	}

	return errors.Join(errs...)
}

// hasGatewayPins reports whether pins of programs at uplink or bridge exist, which decide packets.
func hasGatewayPins(pinDir string) bool {
	return slices.ContainsFunc(hooks[:], func(name string) bool { return hasPin(pinDir, name+"*") })
}

// hasHookPins reports whether pins of programs at uplink, bridge or pods' devices exist.
func hasHookPins(pinDir string) bool { return hasGatewayPins(pinDir) || hasPin(pinDir, bpf.PodPins) }

func hasPin(pinDir, pattern string) bool {
	pins, err := filepath.Glob(filepath.Join(pinDir, pattern))
	return err == nil && len(pins) > 0
}

// openIdle opens the pinned programs with settings that pass every packet. It returns nil if
// nothing is pinned.
func openIdle(s Settings, log *slog.Logger) (*bpf.Gateway, error) {
	if _, err := os.Stat(s.PinDir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	idle := bpf.Config{
		Config: verdict.Config{SNATPorts: s.SNATPorts, GenevePort: model.TunnelPort},
		Layout: s.Layout,
	}

	return bpf.Open(bpf.Options{PinDir: s.PinDir, Config: idle, Log: log, Clsact: clsactFuncs()})
}

// takeDown detaches the programs, removes the pins and closes g. A nil g is a no-op.
func takeDown(g *bpf.Gateway) error {
	if g == nil {
		return nil
	}

	return errors.Join(g.Detach(), g.Close())
}
