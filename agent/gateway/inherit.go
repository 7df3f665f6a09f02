package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// inheritance is a node's configuration by ovn-kubernetes when the first agent started. It covers
// everything that an agent changes, so that Cleanup can restore the node.
type inheritance struct {
	Boot    string         // interface indexes, port numbers and flows are void after a reboot
	Wiring  Wiring         // of the agent that took over
	Ports   openflow.Ports // the port numbers in Flows
	Flows   []string
	OVS     ovs.SavedConfig
	Devices []nicbridge.SavedDevice
}

const inheritanceFile = "taken-over.json"

// Inherited reports whether the node was taken over from ovn-kubernetes since boot and not restored
// yet.
func Inherited(rundir string) bool {
	_, is := loadInheritance(rundir)
	return is
}

// InheritedWiring returns the wiring with which the node was taken over.
func InheritedWiring(rundir string) (Wiring, bool) {
	in, is := loadInheritance(rundir)
	return in.Wiring, is
}

// TakeOver records ovn-kubernetes' configuration of the node. It does so only if the bridge has
// flows of ovn-kubernetes and no record exists. It changes nothing else.
func TakeOver(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	if s.Layout != verdict.Bridged || Inherited(s.RunDir) {
		return nil
	}

	if _, err := o.OFPorts(ctx, s.Bridge); errors.Is(err, ovs.ErrNotFound) {
		return nil
	}

	flows, err := ovs.PredecessorFlows(ctx, s.OVSRunDir, s.Bridge)
	if err != nil { // ovs-vswitchd is down, and flows do not survive it
		log.Warn("cannot check the node for flows of ovn-kubernetes", "error", err)
		return nil
	}

	if len(flows) == 0 {
		return nil
	}

	in := inheritance{Boot: nicbridge.BootID(), Wiring: s.Wiring, Flows: flows}
	if in.Ports, err = bridgePorts(ctx, o, s.Bridge, s.Uplink); err != nil {
		return err
	}

	bridges, interfaces := []string{s.Bridge, ovs.IntegrationBridge}, []string{s.Bridge, management.Name}
	if in.OVS, err = o.ReadConfig(ctx, bridges, interfaces); err != nil {
		return err
	}

	if in.Devices, err = keepDevices(s); err != nil {
		return err
	}

	if err := in.save(s.RunDir); err != nil {
		return err
	}

	log.Info("taking over the node from ovn-kubernetes; --cleanup restores it",
		"bridge", s.Bridge, "flows", len(flows))

	return nil
}

// keepDevices reads the management port, and the part of the bridge that syncHairpin changes.
func keepDevices(s Settings) ([]nicbridge.SavedDevice, error) {
	ours, h := map[netip.Prefix]bool{}, hostHairpin(bothFamilies, s)
	for _, r := range h.Routes {
		ours[r.Prefix] = true
	}

	for _, a := range h.Addresses {
		ours[hostPrefix(a)] = true
	}

	bridge, err := nicbridge.ReadDevice(s.Bridge, func(p netip.Prefix) bool { return ours[p] })
	if err != nil {
		return nil, err
	}

	if _, err := link.Get(management.Name); errors.Is(err, link.ErrNotFound) {
		return []nicbridge.SavedDevice{bridge}, nil
	}

	port, err := nicbridge.ReadDevice(management.Name, nil)

	return []nicbridge.SavedDevice{bridge, port}, err
}

func (in inheritance) save(rundir string) error {
	if err := nicbridge.WriteJSON(filepath.Join(rundir, inheritanceFile), in); err != nil {
		return fmt.Errorf("record the node's configuration: %w", err)
	}

	return nil
}

// loadInheritance reads the record. It returns false if there is none from this boot.
func loadInheritance(rundir string) (inheritance, bool) {
	in, err := newRunFile[inheritance](rundir, inheritanceFile).read()
	return in, err == nil && in.Boot != "" && in.Boot == nicbridge.BootID()
}

// restoreNode is like Cleanup, for a node that was taken over. The flows come first: once they are
// written, the node's packets take their former path, with and without programs. Pods, management
// port, patch ports and the bridge mapping stay, because ovnkube-node continues to use them.
func restoreNode(ctx context.Context, in inheritance, s Settings, o *ovs.Client, log *slog.Logger) error {
	if err := restoreFlows(ctx, in, s, o, log); err != nil {
		return fmt.Errorf("restore node: nothing was changed: %w", err)
	}

	idle, err := openIdle(s, log)
	errs := []error{err, takeDown(idle), removeFilters()}

	if l, err := link.Get(s.Uplink); err == nil {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter, false))
	}

	errs = append(errs, link.RemoveHairpin(s.Bridge, hostHairpin(bothFamilies, s)), o.Restore(ctx, in.OVS))
	for _, d := range in.Devices {
		errs = append(errs, d.Restore())
	}

	errs = append(errs, releasePorts(s.RunDir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restore node: %w", err)
	}

	log.Info("node restored as ovn-kubernetes left it", "bridge", s.Bridge)

	return os.Remove(filepath.Join(s.RunDir, inheritanceFile))
}

// restoreFlows writes the recorded flows. They refer to ports by number. If the numbers changed,
// for example after a restart of ovs-vswitchd, the bridge becomes a learning switch until
// ovnkube-node writes its own flows.
func restoreFlows(ctx context.Context, in inheritance, s Settings, o *ovs.Client, log *slog.Logger) error {
	h, err := observe(s.Wiring, knownAddresses{})
	if err != nil {
		return err
	}

	ports, err := bridgePorts(ctx, o, s.Bridge, s.Uplink)
	if err != nil {
		return err
	}

	if ports != in.Ports {
		log.Warn("port numbers of the bridge changed since the takeover: flows of ovn-kubernetes not restored",
			"were", in.Ports, "are", ports)

		return removeFlows(ctx, s, o)
	}

	tracked, err := ovs.Conntrack(ctx, s.OVSRunDir)
	if err != nil {
		log.Warn("connections in which the remote sends first will be reset", "error", err)
	}

	connections := takenOver(tracked, nodeAddrs(nodeOf(h, s)), cluster.PortRange{})

	handover := openflow.Handover(ports, connections)

	return ovs.ReturnFlows(ctx, s.OVSRunDir, s.Bridge, in.Flows, handover)
}
