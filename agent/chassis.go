package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// chassis is the node in OVN. ovn-controller makes it from the settings in Open vSwitch, which this
// file writes.
type chassis struct {
	id     string     // the system-id of Open vSwitch
	tunnel netip.Addr // the node's end of all tunnels
}

// keepSettings keeps the settings in OVS as syncOVS writes them, until ctx ends. It also runs when
// ovs-vswitchd reports the capabilities of its datapath (table Datapath), which AvoidNullNAT
// changes.
func (a *agent) keepSettings(ctx context.Context) error {
	hasSettings := func(table, _ string) bool { return table == "Open_vSwitch" || table == "Datapath" }

	stopWatch := a.ovs.Watch(hasSettings, a.ovsWake)
	defer stopWatch()

	return loop.Run(ctx, loop.Options{
		Name: "OVS settings", Wake: a.ovsWake, Resync: time.Minute, Log: a.log,
		Apply: func(ctx context.Context) error {
			err := a.syncOVS(ctx)
			if a.cfg.AvoidNullNAT && a.cfg.Datapath == ovs.DatapathNetdev {
				err = errors.Join(err, a.ovs.AvoidNullNAT(ctx, a.cfg.OVSRunDir))
			}

			return err
		},
	})
}

// syncOVS writes the settings for ovn-controller, and updates a.chassis. The system-id changes when
// Open vSwitch is installed again, or an operator sets another one.
func (a *agent) syncOVS(ctx context.Context) error {
	cfg := a.cfg

	encap, err := a.tunnelAddress()
	if err != nil {
		return err
	}

	refused, err := a.refusedChassis(ctx)
	if err != nil {
		return err
	}

	id, err := a.ovs.SyncSettings(ctx, ovs.Settings{
		Remote: cfg.SBAddress, EncapIP: encap.String(), DatapathType: cfg.Datapath,
		Hostname: cfg.NodeName, SystemID: cfg.NodeName, FixedSystemID: cfg.ChassisOfNode, Refused: refused,
	})
	if err != nil {
		return err
	}

	now := chassis{id, encap}
	if before := a.chassis.Swap(&now); before != nil && *before != now {
		a.log.Info("the node's chassis has changed", "system-id", id, "tunnels", encap, "before", *before)
		a.nodeWake.Trigger()
	}

	return nil
}

// tunnelAddress returns the address of the node's tunnels: the configured one, or else that of the
// gateway. In layout dedicated the gateway's address is not the host's.
func (a *agent) tunnelAddress() (netip.Addr, error) {
	cfg := a.cfg
	if cfg.EncapIP.IsValid() {
		return cfg.EncapIP, nil
	}

	if a.gateway != nil && cfg.Layout != verdict.Dedicated { // nil in openOVS, before build
		n, _ := a.gateway.View().Node()
		if encap := n.TunnelAddress(cfg.EncapIP); encap.IsValid() {
			return encap, nil
		}
	}

	encap, err := gateway.EncapAddress(cfg.Settings)
	if err == nil && !encap.IsValid() {
		err = fmt.Errorf("encap address: the host has none on %s", cfg.Uplink)
	}

	return encap, err
}

// refusedChassis reports whether another node keeps this node's system-id, so that this one must
// not connect to the Southbound database.
//
//   - If the controller has decided this, the Node has the annotation ChassisTakenBy.
//   - Before that, the result is true if another Node has the system-id, and had it first: this Node's
//     annotation does not have it yet, or it was refused before.
//   - While the Node is not known, the last result is valid, which OVS keeps.
func (a *agent) refusedChassis(ctx context.Context) (bool, error) {
	id, refused, err := a.ovs.Chassis(ctx, a.cfg.NodeName)
	node := a.cluster.Node()

	if err != nil || node == nil {
		return refused, err
	}

	if node.Annotations[annotation.ChassisTakenBy] != "" {
		return true, nil
	}

	return a.cluster.ChassisTaken(id) && (refused || node.Annotations[annotation.ChassisID] != id), nil
}
