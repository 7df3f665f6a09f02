package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// inheritance is what ovn-kubernetes had on a node when the first agent came: all that
// an agent changes there, so that Cleanup can give the node back.
type inheritance struct {
	Boot    string         // interface indexes, ports' numbers and flows mean nothing in another
	Wiring  Wiring         // the agent's that took over
	Ports   openflow.Ports // that Flows name
	Flows   []string
	OVS     ovs.Kept
	Devices []nicbridge.Kept
}

const inheritanceFile = "taken-over.json"

// Inherited reports whether the node was taken over from ovn-kubernetes since it
// booted, and has not been given back.
func Inherited(rundir string) bool {
	_, err := loadInheritance(rundir)
	return err == nil
}

// InheritedWiring returns the wiring with which the node was taken over.
func InheritedWiring(rundir string) (Wiring, bool) {
	in, err := loadInheritance(rundir)
	return in.Wiring, err == nil
}

// TakeOver notes what ovn-kubernetes has on the node, if it has been there: its flows
// are on the bridge, and nobody has noted it yet. It changes nothing else.
func TakeOver(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	if s.Layout != Bridged || Inherited(s.RunDir) {
		return nil
	}
	if _, err := o.OFPorts(ctx, s.Bridge); errors.Is(err, ovs.ErrNotFound) {
		return nil
	}
	flows, err := ovs.PredecessorFlows(ctx, s.OVSRunDir, s.Bridge)
	if err != nil { // ovs-vswitchd does not run, and flows do not outlive it
		log.Warn("whether ovn-kubernetes has been here is not known", "error", err)
		return nil
	}
	if len(flows) == 0 {
		return nil
	}
	in := inheritance{Boot: nicbridge.BootID(), Wiring: s.Wiring, Flows: flows}
	if in.Ports, err = bridgePorts(ctx, o, s.Bridge, s.Uplink); err != nil {
		return err
	}
	if in.OVS, err = o.Keep(ctx, []string{s.Bridge, ovs.IntegrationBridge}, []string{s.Bridge, management.Name}); err != nil {
		return err
	}
	if in.Devices, err = keepDevices(s); err != nil {
		return err
	}
	if err := in.save(s.RunDir); err != nil {
		return err
	}
	log.Info("taking over the node from ovn-kubernetes; --cleanup gives it back", "bridge", s.Bridge, "flows", len(flows))
	return nil
}

// keepDevices reads the bridge, as far as syncHairpin changes it, and the management port.
func keepDevices(s Settings) ([]nicbridge.Kept, error) {
	ours, h := map[netip.Prefix]bool{}, hostHairpin(bothFamilies, s)
	for _, r := range h.Routes {
		ours[r.Prefix] = true
	}
	for _, a := range h.Addresses {
		ours[single(a)] = true
	}
	bridge, err := nicbridge.Keep(s.Bridge, func(p netip.Prefix) bool { return ours[p] })
	if err != nil {
		return nil, err
	}
	if _, err := link.Get(management.Name); errors.Is(err, link.ErrNotFound) {
		return []nicbridge.Kept{bridge}, nil
	}
	port, err := nicbridge.Keep(management.Name, nil)
	return []nicbridge.Kept{bridge, port}, err
}

func (in inheritance) save(rundir string) error {
	if err := nicbridge.WriteJSON(filepath.Join(rundir, inheritanceFile), in); err != nil {
		return fmt.Errorf("note what is on the node: %w", err)
	}
	return nil
}

// loadInheritance returns fs.ErrNotExist (wrapped) when there is none of this boot.
func loadInheritance(rundir string) (inheritance, error) {
	var in inheritance
	path := filepath.Join(rundir, inheritanceFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return in, fmt.Errorf("read what was on the node: %w", err)
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("read what was on the node, %s: %w", path, err)
	}
	if in.Boot != nicbridge.BootID() {
		return in, fmt.Errorf("read what was on the node, %s: of an earlier boot: %w", path, fs.ErrNotExist)
	}
	return in, nil
}

// restoreNode is Cleanup of a node that was taken over. The flows come first: as soon as
// they are there the node's packets go as they did, with and without programs. Pods,
// management port, patch ports and the bridge's mapping stay: ovn-kubernetes' node
// goes on with them.
func restoreNode(ctx context.Context, in inheritance, s Settings, o *ovs.Client, log *slog.Logger) error {
	if err := restoreFlows(ctx, in, s, o, log); err != nil {
		return fmt.Errorf("give the node back: nothing was changed: %w", err)
	}
	idle, err := openIdle(s, log)
	errs := []error{err, takeDown(idle), removeFilters()}
	if l, err := link.Get(s.Uplink); err == nil {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter))
	}
	errs = append(errs, link.RemoveHairpin(s.Bridge, hostHairpin(bothFamilies, s)), o.Restore(ctx, in.OVS))
	for _, d := range in.Devices {
		errs = append(errs, d.Return())
	}
	errs = append(errs, releasePorts(s.RunDir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("give the node back: %w", err)
	}
	log.Info("the node is given back as ovn-kubernetes left it", "bridge", s.Bridge)
	return os.Remove(filepath.Join(s.RunDir, inheritanceFile))
}

// restoreFlows writes those of before. They name ports by numbers: where ports have
// got others, as when ovs-vswitchd was restarted, the bridge becomes a switch until
// ovn-kubernetes' node writes its own.
func restoreFlows(ctx context.Context, in inheritance, s Settings, o *ovs.Client, log *slog.Logger) error {
	n, err := ReadNode(s)
	if err != nil {
		return err
	}
	ports, err := bridgePorts(ctx, o, s.Bridge, s.Uplink)
	if err != nil {
		return err
	}
	if ports != in.Ports {
		log.Warn("ports of the bridge have other numbers than ovn-kubernetes' flows: they are not written back", "were", in.Ports, "are", ports)
		return removeFlows(ctx, s, o)
	}
	tracked, err := ovs.Conntrack(ctx, s.OVSRunDir)
	if err != nil {
		log.Warn("connections of pods that the remote speaks first in will be reset", "error", err)
	}
	connections := takenOver(tracked, nodeAddrs(n), bpf.PortRange{})
	return ovs.ReturnFlows(ctx, s.OVSRunDir, s.Bridge, in.Flows, openflow.Handover(ports, connectionsOf(connections)))
}

func connectionsOf(keys []bpf.FlowKey) []openflow.Connection {
	var out []openflow.Connection
	for _, k := range keys {
		out = append(out, openflow.Connection{Proto: k.Proto, Local: k.Local, Remote: k.Remote})
	}
	return out
}
