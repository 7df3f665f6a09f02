package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// Switch is the interface of a move to Open vSwitch. All methods are idempotent.
type Switch interface {
	// AddBridge creates the bridge with its internal port and sets the port's MAC and MTU. It only
	// corrects an existing bridge.
	AddBridge(ctx context.Context, name, mac string, mtu int) error
	// AddPort adds the device and returns when ovs-vswitchd has opened it.
	AddPort(ctx context.Context, bridge, device string) error
	// Remove takes the device out of the bridge, and deletes the bridge if AddBridge created it. It
	// need not wait for ovs-vswitchd.
	Remove(ctx context.Context, bridge, device string) error
}

// Options configures a move.
type Options struct {
	NIC    string
	Bridge string // only for Move; the other functions read it from the snapshot
	Dir    string // of snapshot, lock and the watchdog's log; on a tmpfs
	Switch Switch
	// OnPortAdded makes the bridge pass packets between NIC and host, right after the NIC became
	// its port. It is nil if the bridge does so already, as a new one does.
	OnPortAdded func(ctx context.Context) error
	// Watchdog is the command that runs Watch; arguments are appended. With nil there is no
	// watchdog, and a killed mover leaves a half-moved NIC.
	Watchdog []string
	Timeout  time.Duration // for the whole move; 0 means a minute
	Force    bool          // also move a NIC that a DHCP client or a network manager owns
	Asked    bool          // an operator requested Move, not the agent: Snapshot.Asked
	Log      *slog.Logger  // may be nil

	hook func(what string) error // before each change, in tests
}

// ErrOwned is returned (wrapped) for a NIC that another program configures.
var ErrOwned = errors.New("another program configures it")

// ErrUnderWay is returned (wrapped) where another process is moving the NIC.
var ErrUnderWay = errors.New("a move is under way")

// errOvertaken means that the watchdog has started to restore the NIC, so the mover must stop.
var errOvertaken = errors.New("the watchdog restores")

// complete checks the options and sets defaults.
func (o *Options) complete() error {
	if o.NIC == "" || o.NIC == o.Bridge || o.Dir == "" || o.Switch == nil {
		return fmt.Errorf("check options: NIC %q, bridge %q, directory %q: need distinct names and a switch",
			o.NIC, o.Bridge, o.Dir)
	}

	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}

	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}

	return nil
}

// Move makes the NIC a port of the bridge and moves the host's configuration from the NIC to the
// bridge's internal port. After success, the gateways that answered before answer through the
// bridge. After an error the former state is restored, or the error includes the failure of the
// undo.
//
// If the NIC has been moved already, nothing changes. If a crash left a partial move, Move undoes
// it first. After success the watchdog stays for a few seconds and restores the NIC if the gateways
// stop answering.
func Move(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}

	if o.Bridge == "" {
		return errors.New("check options: no bridge")
	}

	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	release, err := claim(ctx, o.Dir, o.NIC)
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", o.NIC, o.Bridge, err)
	}
	defer release()

	moved, err := o.checkEarlierMove(ctx)
	if moved || err != nil {
		return err
	}

	m, err := prepare(ctx, o)
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", o.NIC, o.Bridge, err)
	}

	stop, err := m.startWatchdog(ctx)
	if err == nil {
		defer stop()

		err = m.applyMove(ctx)
	}

	if err == nil {
		return nil
	}

	err = fmt.Errorf("move %s to %s: %w", o.NIC, o.Bridge, err)
	if errors.Is(err, errOvertaken) { // the watchdog restores the NIC
		return err
	}

	if undo := m.restoreSnapshot(context.WithoutCancel(ctx)); undo != nil {
		return errors.Join(err, undo)
	}

	return err
}

// checkEarlierMove reports whether an earlier move of the NIC to the bridge is complete. It undoes
// an unfinished move, and returns an error for a NIC that is on another bridge.
func (o *Options) checkEarlierMove(ctx context.Context) (moved bool, err error) {
	old, err := Load(o.Dir, o.NIC)

	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && old.Phase == Restored: // the NIC is not moved
		return false, nil
	case err != nil:
		return false, err
	case old.Phase == Done && old.holds() && old.Bridge != o.Bridge:
		return false, fmt.Errorf("move %s to %s: it is on %s", o.NIC, o.Bridge, old.Bridge)
	case old.Phase == Done && old.holds():
		return true, o.recordAsked(old)
	}

	_, err = o.recover(ctx)

	return false, err
}

// recordAsked records that an operator requested a move that was already made.
func (o *Options) recordAsked(s *Snapshot) error {
	if s.Asked || !o.Asked {
		return nil
	}

	s.Asked = true

	return s.save(o.Dir)
}

// Restore undoes a Move of this boot. It restores NIC and bridge to the snapshot, except for
// lifetimes that were renewed meanwhile. Configuration added to the bridge since is not moved.
// Without a snapshot, or after a restoration, it does nothing. If Restore is killed, the watchdog
// completes it.
func Restore(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}

	release, err := claim(ctx, o.Dir, o.NIC)
	if err != nil {
		return fmt.Errorf("restore %s: %w", o.NIC, err)
	}
	defer release()

	s, err := Load(o.Dir, o.NIC)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.Phase == Restored {
		return nil
	}

	if err != nil {
		return err
	}

	m := &mover{Options: o, snap: s}

	stop, err := m.startWatchdog(ctx)
	if err != nil {
		return err
	}
	defer stop()

	return m.restoreSnapshot(ctx)
}

// Recover undoes a move that a crash interrupted, or that lost the host's addresses because the
// bridge was deleted. It reports whether there was such a move. While a mover is alive it changes
// nothing and returns ErrUnderWay (wrapped). Call it at start, and when the bridge's device was
// recreated.
func Recover(ctx context.Context, o Options) (bool, error) {
	if err := o.complete(); err != nil {
		return false, err
	}

	release, err := tryClaim(o.Dir, o.NIC)
	if err != nil {
		return false, err
	}
	defer release()

	return o.recover(ctx)
}

// recover does what Recover does, for a caller that holds the claim.
func (o Options) recover(ctx context.Context) (bool, error) {
	s, err := Load(o.Dir, o.NIC)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	if s.Phase == Restored || s.Phase == Done && s.holds() {
		return false, nil
	}

	o.Log.Warn("unfinished move of a NIC, undoing it", "nic", o.NIC, "bridge", s.Bridge, "phase", s.Phase)

	return true, (&mover{Options: o, snap: s}).restoreSnapshot(ctx)
}

// holds reports whether the bridge still carries the host's configuration after a complete move. If
// it is the device that the addresses were moved to, any address of the host is enough: an operator
// may have replaced one, and a network manager that restarts removes one for seconds. A bridge that
// was deleted and made again must have every moved address.
func (s *Snapshot) holds() bool {
	bridge, err := netlink.LinkByName(s.Bridge)
	if err != nil {
		return false
	}

	have, err := addrsOf(bridge.Attrs().Index)
	if err != nil {
		return false
	}

	if bridge.Attrs().Index != s.BridgeIndex { // or an earlier version moved them
		return s.hasAll(have)
	}

	return slices.ContainsFunc(have, func(msg []byte) bool {
		a, err := parseAddr(msg)
		return err == nil && !a.key.Addr().IsLinkLocalUnicast()
	})
}

// hasAll reports whether have, messages of addresses, contains every moved address, except those
// that expire.
func (s *Snapshot) hasAll(have [][]byte) bool {
	for _, msg := range s.Had.Addresses {
		if a, err := parseAddr(msg); err == nil && !a.dynamic() && lookup(msg, have) == nil {
			return false
		}
	}

	return true
}
