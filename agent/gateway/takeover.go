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

// takeoverRecord is the configuration that a node had from ovn-kubernetes when the first agent
// started. It covers everything that an agent changes, so that Cleanup can restore the node.
// RecordTakeover writes it, and undoTakeover restores it.
type takeoverRecord struct {
	// Boot identifies the boot in which the record was made. After a reboot the record does not
	// count: interface indexes and port numbers have changed, and the flows are gone.
	Boot    string
	Wiring  Wiring         // of the agent that took over
	Ports   openflow.Ports // the port numbers in Flows
	Flows   []string       // ovn-kubernetes' flows on the bridge
	OVS     ovs.SavedConfig
	Devices []nicbridge.SavedDevice // management port and bridge
}

const takeoverFile = "taken-over.json" // in the run directory

// TakenOver reports whether the node was taken over from ovn-kubernetes since boot and not restored
// yet.
func TakenOver(rundir string) bool {
	_, found := loadTakeover(rundir)
	return found
}

// TakeoverWiring returns the wiring with which the node was taken over.
func TakeoverWiring(rundir string) (Wiring, bool) {
	record, found := loadTakeover(rundir)
	return record.Wiring, found
}

// RecordTakeover records ovn-kubernetes' configuration of the node, before the agent replaces it.
// It does so only if the bridge has flows of ovn-kubernetes and no record exists. It changes
// nothing else.
func RecordTakeover(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	if s.Layout != verdict.Bridged || TakenOver(s.RunDir) {
		return nil
	}

	if _, err := o.OFPorts(ctx, s.Bridge); errors.Is(err, ovs.ErrNotFound) {
		return nil
	}

	flows, err := ovs.PredecessorFlows(ctx, s.OVSRunDir, s.Bridge)
	if err != nil {
		// ovs-vswitchd is down. The bridge's flows ended with it, so there are none to record, and
		// the agent starts without them.
		log.Warn("cannot check the node for flows of ovn-kubernetes", "error", err)
		return nil
	}

	if len(flows) == 0 {
		return nil
	}

	record := takeoverRecord{Boot: nicbridge.BootID(), Wiring: s.Wiring, Flows: flows}
	if record.Ports, err = bridgePorts(ctx, o, s.Bridge, s.Uplink); err != nil {
		return err
	}

	bridges, interfaces := []string{s.Bridge, ovs.IntegrationBridge}, []string{s.Bridge, management.Name}
	if record.OVS, err = o.ReadConfig(ctx, bridges, interfaces); err != nil {
		return err
	}

	if record.Devices, err = readDevices(s); err != nil {
		return err
	}

	if err := record.save(s.RunDir); err != nil {
		return err
	}

	log.Info("taking over the node from ovn-kubernetes; --cleanup restores it",
		"bridge", s.Bridge, "flows", len(flows))

	return nil
}

// readDevices reads addresses and routes of the management port and of the bridge. Of the bridge it
// reads only the prefixes that the agent configures there, too (see hostHairpin).
func readDevices(s Settings) ([]nicbridge.SavedDevice, error) {
	hairpin := hostHairpin(bothFamilies, s)
	ours := map[netip.Prefix]bool{}

	for _, r := range hairpin.Routes {
		ours[r.Prefix] = true
	}

	for _, a := range hairpin.Addresses {
		ours[hostPrefix(a)] = true
	}

	bridge, err := nicbridge.ReadDevice(s.Bridge, func(p netip.Prefix) bool { return ours[p] })
	if err != nil {
		return nil, err
	}

	if _, err := link.Get(management.Name); errors.Is(err, link.ErrNotFound) {
		return []nicbridge.SavedDevice{bridge}, nil
	}

	port, err := nicbridge.ReadDevice(management.Name, nil) // nil: all of the device

	return []nicbridge.SavedDevice{bridge, port}, err
}

func (r takeoverRecord) save(rundir string) error {
	if err := nicbridge.WriteJSON(filepath.Join(rundir, takeoverFile), r); err != nil {
		return fmt.Errorf("record the node's configuration: %w", err)
	}

	return nil
}

// loadTakeover reads the record. It returns false if there is none from this boot.
func loadTakeover(rundir string) (takeoverRecord, bool) {
	record, err := newRunFile[takeoverRecord](rundir, takeoverFile).read()
	return record, err == nil && record.Boot != "" && record.Boot == nicbridge.BootID()
}

// undoTakeover is Cleanup for a node that was taken over. Pods, management port, patch ports and
// the bridge mapping stay, because ovnkube-node continues to use them.
func undoTakeover(ctx context.Context, record takeoverRecord, s Settings, o *ovs.Client, log *slog.Logger) error {
	// The flows come first. Once they are written, the node's packets take their former path, with
	// and without the agent's programs.
	if err := returnFlows(ctx, record, s, o, log); err != nil {
		return fmt.Errorf("restore node: nothing was changed: %w", err)
	}

	// Programs, pins and filters. The steal filter is only there on the userspace datapath.
	idle, err := openIdle(s, log)
	errs := []error{err, takeDown(idle), removeFilters()}

	if l, err := link.Get(s.Uplink); err == nil {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter, false))
	}

	// The recorded configuration. The agent's own goes before, because both have the same prefixes.
	errs = append(errs, link.RemoveHairpin(s.Bridge, hostHairpin(bothFamilies, s)))
	errs = append(errs, o.Restore(ctx, record.OVS))

	for _, d := range record.Devices {
		errs = append(errs, d.Restore())
	}

	errs = append(errs, releasePorts(s.RunDir), releaseIdleConnections(s.RunDir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restore node: %w", err) // the record stays for the next attempt
	}

	log.Info("node restored as ovn-kubernetes left it", "bridge", s.Bridge)

	return os.Remove(filepath.Join(s.RunDir, takeoverFile))
}

// returnFlows replaces the agent's flows by the recorded ones, and by one flow for each connection
// of pods. ovn-kubernetes' flows look up OVN's connections in a conntrack zone. Connections that
// began under the agent are missing in that zone, and their flows add them (see openflow.Handover).
//
// The recorded flows refer to ports by number. If the numbers changed, for example after a restart
// of ovs-vswitchd, the bridge becomes a learning switch until ovnkube-node writes its own flows.
func returnFlows(ctx context.Context, record takeoverRecord, s Settings, o *ovs.Client, log *slog.Logger) error {
	h, err := observe(s.Wiring, knownAddresses{})
	if err != nil {
		return err
	}

	ports, err := bridgePorts(ctx, o, s.Bridge, s.Uplink)
	if err != nil {
		return err
	}

	if ports != record.Ports {
		log.Warn("port numbers of the bridge changed since the takeover: flows of ovn-kubernetes not restored",
			"were", record.Ports, "are", ports)

		return removeFlows(ctx, s, o)
	}

	tracked, err := ovs.Conntrack(ctx, s.OVSRunDir)
	if err != nil { // other connections survive: a pod's next packet enters its own in the zone
		log.Warn("connections in which the remote sends first will be reset", "error", err)
	}

	var noPorts cluster.PortRange // so connections on every port count

	connections := connectionsOutside(noPorts, tracked, nodeAddrs(nodeOf(h, s)))

	return ovs.ReturnFlows(ctx, s.OVSRunDir, s.Bridge, record.Flows, openflow.Handover(ports, connections))
}
