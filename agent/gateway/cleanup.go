package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// hooks are the names that filters of clsact have.
var hooks = [...]string{"uplink_ingress", "uplink_egress", "bridge_ingress", "bridge_egress"}

// Cleanup takes the gateway off the node: mapping, programs and pins, what the
// host has on the bridge, the bridge, reserved ports; in this order OVN is silent
// before anything else goes. A bridge that has the host's addresses goes only
// if the agent moved them there; one found so stays, with its uplink. o may be nil
// when OVSDB is not to be reached; then a host whose addresses are on the bridge is
// left alone. A node that was taken over is given back instead. It does all it can and
// returns all errors.
func Cleanup(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	if o == nil && (s.Layout == Bridged || moved(s) || movedBy(s.RunDir, s.Uplink) != "") {
		// With vswitchd gone, too, nothing but the programs carries the host.
		return fmt.Errorf("clean up gateway: the host's addresses are on a bridge of OVS, which cannot be asked: nothing was changed")
	}
	if in, err := loadInheritance(s.RunDir); err == nil {
		return restoreNode(ctx, in, s, o, log)
	}
	var errs []error
	if o != nil {
		errs = append(errs, o.SyncBridgeMapping(ctx, Network, ""))
	}
	idle, err := openIdle(s, log)
	errs = append(errs, err, takeDown(idle), removeFilters())
	errs = append(errs, link.RemoveHairpin(s.Bridge, hostHairpin(bothFamilies, s)))
	if l, err := link.Get(s.Uplink); err == nil && s.Layout != Direct {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter))
	}
	switch {
	case o == nil:
	case moved(s):
		m := mover(s, o)
		m.Log = log
		errs = append(errs, nicbridge.Restore(ctx, m), o.RemoveBridge(ctx, s.Bridge))
	case s.Layout == Bridged:
		errs = append(errs, removeFlows(ctx, s, o))
	default:
		errs = append(errs, o.RemoveBridge(ctx, s.Bridge))
	}
	return errors.Join(append(errs, releasePorts(s.RunDir))...)
}

// bothFamilies stands for whatever addresses the node had.
var bothFamilies = Node{Addresses: []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}}

// removeFlows takes our flows off a bridge that the host hangs on. There must
// be one that carries it afterwards: somebody else's, or NORMAL of ours.
func removeFlows(ctx context.Context, s Settings, o *ovs.Client) error {
	if _, err := o.OFPorts(ctx, s.Bridge); errors.Is(err, ovs.ErrNotFound) {
		return nil
	}
	_, err := ovs.SyncBundle(ctx, s.OVSRunDir, s.Bridge, []string{"priority=0 actions=NORMAL"})
	if err == nil {
		return nil
	}
	// Somebody else has a flow in that place.
	_, err = ovs.SyncBundle(ctx, s.OVSRunDir, s.Bridge, nil)
	return err
}

// removeFilters takes filters off that no pin tells of: an agent that was
// killed had attached them and not yet noted it.
func removeFilters() error {
	var errs []error
	for _, name := range hooks {
		filters, err := link.ClsactFilters(name)
		errs = append(errs, err)
		for _, f := range filters {
			errs = append(errs, link.DetachClsactAt(f.Ifindex, name, f.Egress))
		}
	}
	return errors.Join(errs...)
}

// hooked reports whether programs of the gateway's are pinned as attached.
func hooked(pinDir string) bool {
	for _, name := range hooks {
		if pins, err := filepath.Glob(filepath.Join(pinDir, name+"*")); err == nil && len(pins) > 0 {
			return true
		}
	}
	return false
}

// openIdle opens what is pinned with settings that pass everything; nil if
// nothing is pinned.
func openIdle(s Settings, log *slog.Logger) (*bpf.Gateway, error) {
	if _, err := os.Stat(s.PinDir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	idle := bpf.Config{NodeMAC: make(net.HardwareAddr, 6), SNATPorts: s.SNATPorts, GenevePort: genevePort, Layout: layouts[s.Layout]}
	return bpf.Open(bpf.Options{PinDir: s.PinDir, Config: idle, Log: log, Clsact: clsactFuncs()})
}

// takeDown detaches everything and removes the pins; nil is nothing.
func takeDown(g *bpf.Gateway) error {
	if g == nil {
		return nil
	}
	return errors.Join(g.Detach(), g.Close())
}
