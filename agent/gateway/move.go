package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// This file moves the uplink between the host and the bridge, as the layout requires:
//
//   - In layout bridged, the uplink is a port of the bridge, and the bridge has the host's
//     addresses. joinBridge brings the node there. rejoin repairs such a node.
//   - In layout direct, the uplink has the host's addresses. leaveBridge brings the node there, if
//     an agent had moved it before.
//
// Package nicbridge does the move itself: it records a snapshot in the run directory, moves
// addresses and routes, and undoes the move if it fails or its process ends. While the move is in
// effect, the snapshot's phase is Done.

// moveOptions returns the options with which nicbridge moves the uplink.
func moveOptions(s Settings, o *ovs.Client) nicbridge.Options {
	return nicbridge.Options{
		NIC: s.Uplink, Bridge: s.Bridge, Dir: s.RunDir, Watchdog: s.Watchdog,
		Switch: HostSwitch(o, s.Datapath, s.PinDir),
	}
}

// addressesMoved reports whether nicbridge has moved the host's addresses to the bridge. An
// operator who has put the addresses there without nicbridge does not count.
func addressesMoved(s Settings) bool {
	snapshot, err := nicbridge.Load(s.RunDir, s.Uplink)
	return err == nil && snapshot.Phase == nicbridge.Done
}

// nicOfMove returns the NIC whose addresses were moved to the bridge, or "".
func nicOfMove(rundir, bridge string) string {
	nic := strings.TrimPrefix(bridge, "br") // nicbridge has named the bridge after the NIC

	snapshot, err := nicbridge.Load(rundir, nic)
	if err != nil || snapshot.Phase != nicbridge.Done || snapshot.Bridge != bridge {
		return ""
	}

	return nic
}

// Moving returns nicbridge.ErrUnderWay (wrapped) while a live process moves a NIC of the node to a
// bridge or back.
func Moving(rundir string) error {
	nic, err := nicbridge.UnderWay(rundir)
	if err == nil && nic != "" {
		err = fmt.Errorf("uplink %s: %w", nic, nicbridge.ErrUnderWay)
	}

	return err
}

// Recover undoes a move of the uplink that a crash interrupted.
func Recover(ctx context.Context, s Settings, o *ovs.Client) error {
	if _, err := nicbridge.Load(s.RunDir, s.Uplink); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	_, err := nicbridge.Recover(ctx, moveOptions(s, o))

	return err
}

// transfer is the pending change of the uplink.
type transfer int

const (
	noTransfer    transfer = iota
	joinTransfer           // make the uplink a port of the bridge
	leaveTransfer          // move the host's addresses back to the uplink
)

// requiredTransfer returns the transfer that the layout requires. In layout dedicated there is
// none: syncBridge makes the uplink a port, and no addresses move.
func (t *topology) requiredTransfer(ctx context.Context, h Host) (transfer, error) {
	if err := checkDedicatedUplink(h, t.s); err != nil {
		return noTransfer, err
	}

	if t.s.Layout == verdict.Direct && addressesMoved(t.s) {
		return leaveTransfer, nil
	}

	isMember, err := checkBridge(ctx, t.ovs, t.s.Wiring)
	if err != nil || t.s.Layout != verdict.Bridged {
		return noTransfer, err
	}

	// After a reboot OVSDB still lists the uplink as a port, but the boot has assigned the
	// addresses to the uplink.
	if isMember && !addressesOnUplink(h, t.s) {
		return noTransfer, nil
	}

	return joinTransfer, nil
}

// joinBridge makes the uplink a port of the bridge and moves the host's addresses to the bridge.
// prepare does the slow work beforehand. syncBackend switches the backend over at the moment OVS
// takes the uplink: the backend of the old layout is right until then, the new one afterwards.
// Passing every packet to the host meanwhile would make its stack reset OVN's connections.
func (t *topology) joinBridge(
	ctx context.Context,
	h Host,
	prepare func() error,
	syncBackend func(context.Context) error,
) error {
	onUplink := func(a link.Address) bool { return a.Device == t.s.Uplink && !a.LinkLocal }
	if !slices.ContainsFunc(h.Addresses, onUplink) {
		return t.rejoin(ctx, h)
	}

	if t.s.VLAN != 0 { // the host's network is untagged, so a tag would cut the host off
		return fmt.Errorf("gateway VLAN %d: the host's addresses are on %s itself: put them on bridge %s, behind the tag, first",
			t.s.VLAN, t.s.Uplink, t.s.Bridge)
	}

	if err := t.moveAttempts.start(time.Now()); err != nil {
		return err
	}

	// Tunnels end at the host's address from now on, so the bridge loses the encap address.
	if h.Bridge != nil && t.s.Userspace() {
		if err := link.SyncAddresses(t.s.Bridge, nil); err != nil {
			return err
		}
	}

	if err := prepare(); err != nil {
		return err
	}

	// The bridge may have no flows: it was deleted a moment ago, or the move creates it.
	t.flows.invalidate()

	if h.Bridge != nil {
		if err := t.prepareUplinkJoin(ctx); err != nil {
			return err
		}
	}

	o := moveOptions(t.s, t.ovs)
	o.Log, o.OnPortAdded = t.log, syncBackend
	t.log.Info("moving the host's addresses to the bridge", "uplink", t.s.Uplink, "bridge", t.s.Bridge)

	if err := nicbridge.Move(ctx, o); err != nil {
		return err
	}

	t.flows.invalidate() // compare those that syncBackend wrote once more, now that the bridge is at rest

	return nil
}

// prepareTimeout limits the wait for ovs-vswitchd, which may have ended. It keeps the gateway's
// loop from its other work.
const prepareTimeout = 10 * time.Second

// prepareUplinkJoin readies the bridge of layout direct for the uplink. First it sets the fail
// mode, because ovs-vswitchd deletes all flows when that changes. Then it writes flows that are
// right while the uplink becomes a port. A bridge that OVS does not have needs nothing: the move
// creates it, standalone.
func (t *topology) prepareUplinkJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()

	err := t.ovs.SyncBridge(ctx, ovs.Bridge{Name: t.s.Bridge, FailMode: ovs.FailStandalone, Existing: true})
	if errors.Is(err, ovs.ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := t.ovs.WaitApplied(ctx); err != nil {
		return err
	}

	patch, err := PatchPort(ctx, t.ovs, t.s.Bridge)
	if err != nil {
		return err
	}

	return t.flows.writeTemporary(ctx, openflow.Joining(patch, t.s.Userspace()))
}

// leaveBridge takes the uplink out of the bridge and moves the host's addresses back to it.
// beforeRemove switches the backend over immediately before. The programs of the new layout are
// then in place, so the Switch does not detach them, unlike that of HostSwitch.
func (t *topology) leaveBridge(ctx context.Context, beforeRemove func() error) error {
	o := moveOptions(t.s, t.ovs)
	o.Log = t.log
	o.Switch = releasingSwitch{
		Switch:       ovs.HostSwitch{Client: t.ovs, DatapathType: t.s.Datapath},
		beforeRemove: beforeRemove,
	}
	t.log.Info("moving the host's addresses back to the uplink", "uplink", t.s.Uplink, "bridge", t.s.Bridge)

	if err := nicbridge.Restore(ctx, o); err != nil {
		return err
	}

	t.flows.invalidate() // a bridge that the move had created was deleted with them

	return nil
}

// rejoin is like joinBridge, for an uplink without addresses. One of these has happened:
//
//   - The uplink was taken out of the bridge, which has the host's addresses.
//   - OVS has a new database. Only the bridge's device is left, with the host's addresses.
//   - The bridge was deleted with the host's addresses.
func (t *topology) rejoin(ctx context.Context, h Host) error {
	hostIsOnBridge := len(nodeOf(h, t.s).Addresses) > 0

	switch {
	case hostIsOnBridge:
		t.flows.invalidate()

		hostSwitch := HostSwitch(t.ovs, t.s.Datapath, t.s.PinDir)

		err := hostSwitch.AddPort(ctx, t.s.Bridge, t.s.Uplink)
		if errors.Is(err, ovs.ErrNotFound) && addressesMoved(t.s) { // the agent has made the bridge
			err = t.recreateBridge(ctx, hostSwitch, h)
		}

		if err == nil {
			t.record.countRepair("uplink_port")
		}

		return err
	case addressesMoved(t.s):
		return Recover(ctx, t.s, t.ovs) // moves them back to the uplink
	default:
		return fmt.Errorf("uplink %s is not a port of bridge %s and has no addresses to move there",
			t.s.Uplink, t.s.Bridge)
	}
}

// recreateBridge makes the bridge again around its device, which has the host's addresses. If the
// device is gone, or goes meanwhile because the bridge was deleted, it undoes the move instead.
func (t *topology) recreateBridge(ctx context.Context, hostSwitch nicbridge.Switch, h Host) error {
	if err := Recover(ctx, t.s, t.ovs); err != nil || !addressesMoved(t.s) {
		return err
	}

	if err := hostSwitch.AddBridge(ctx, t.s.Bridge, h.Uplink.MAC.String(), h.Uplink.MTU); err != nil {
		return err
	}

	if err := hostSwitch.AddPort(ctx, t.s.Bridge, t.s.Uplink); err != nil {
		return err
	}

	return Recover(ctx, t.s, t.ovs) // again: the device may have gone meanwhile
}

// moveAttempts spaces the attempts to move the host's addresses, because each attempt that is
// undone, by the agent or by the watchdog, interrupts the host. The first one starts at once, and
// the wait after each doubles, up to about an hour.
type moveAttempts struct {
	started   int
	notBefore time.Time // of the next one
}

const (
	firstMoveWait = time.Minute
	mostDoublings = 6 // to 64 min
)

// start counts an attempt, or returns an error if it is too early for one.
func (m *moveAttempts) start(now time.Time) error {
	if now.Before(m.notBefore) {
		return fmt.Errorf("the host's addresses were moved back to the uplink: next attempt not before %s",
			m.notBefore.Format(time.TimeOnly))
	}

	m.notBefore = now.Add(firstMoveWait << min(m.started, mostDoublings))
	m.started++

	return nil
}
