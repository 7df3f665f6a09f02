package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"
)

// Switch is Open vSwitch as a move needs it. All methods are idempotent.
type Switch interface {
	// AddBridge makes the bridge with its internal port, which gets the MAC and
	// MTU. One that is there is only corrected.
	AddBridge(ctx context.Context, name, mac string, mtu int) error
	// AddPort adds the device and returns when vswitchd has it.
	AddPort(ctx context.Context, bridge, device string) error
	// Remove takes the device out of the bridge, and deletes the bridge if
	// AddBridge made it. It need not wait for vswitchd.
	Remove(ctx context.Context, bridge, device string) error
}

// Options say what to move, and how.
type Options struct {
	NIC    string
	Bridge string // only for Move: the others read it in the snapshot
	Dir    string // of snapshot, lock and the watchdog's log; on a tmpfs
	Switch Switch
	// Carry makes the bridge pass packets between NIC and host, right after
	// the NIC is its port. Nil where the bridge does so already, as a new one does.
	Carry func(ctx context.Context) error
	// Watchdog is the command that ends in Watch; arguments are appended. Nil
	// starts none, and a mover that is killed leaves a half moved NIC.
	Watchdog []string
	Timeout  time.Duration // for the whole move; 0 is a minute
	Force    bool          // also a NIC that a DHCP client or a network manager owns
	Asked    bool          // Move is an operator's, not the agent's own doing: Snapshot.Asked
	Log      *slog.Logger

	hook func(what string) error // before each change, in tests
}

// ErrOwned is returned (wrapped) for a NIC that another program configures.
var ErrOwned = errors.New("another program configures it")

// ErrUnderWay is returned (wrapped) where another process is moving the NIC.
var ErrUnderWay = errors.New("a move is under way")

// errOvertaken tells a mover that the watchdog has begun to restore.
var errOvertaken = errors.New("the watchdog restores")

func (o *Options) complete() error {
	if o.NIC == "" || o.NIC == o.Bridge || o.Dir == "" || o.Switch == nil {
		return fmt.Errorf("check options: NIC %q, bridge %q, directory %q: want names that differ, and a switch", o.NIC, o.Bridge, o.Dir)
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Move makes the NIC a port of the bridge and gives the bridge's internal port
// what the host has on the NIC. When it returns nil the gateways that answered
// before answer through the bridge; when it returns an error everything is as
// before, or the error says that undoing failed too. Moved already is no
// change; what a crash left is undone first. The watchdog stays for a few
// seconds after success and restores if the gateways fall silent then.
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
	old, err := Load(o.Dir, o.NIC)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && old.Phase == Restored:
	case err != nil:
		return err
	case old.Phase == Done && old.holds() && old.Bridge != o.Bridge:
		return fmt.Errorf("move %s to %s: it is on %s", o.NIC, o.Bridge, old.Bridge)
	case old.Phase == Done && old.holds():
		return o.ask(old)
	default:
		if _, err := o.recover(ctx); err != nil {
			return err
		}
	}
	m, err := prepare(ctx, o)
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", o.NIC, o.Bridge, err)
	}
	stop, err := m.startWatchdog(ctx)
	if err == nil {
		defer stop()
		err = m.forward(ctx)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("move %s to %s: %w", o.NIC, o.Bridge, err)
	if errors.Is(err, errOvertaken) {
		return err
	}
	if undo := m.undo(context.WithoutCancel(ctx)); undo != nil {
		return errors.Join(err, undo)
	}
	return err
}

// Restore undoes a Move of this boot: NIC and bridge are again as the snapshot
// says, but for lifetimes that were renewed meanwhile. What somebody added to
// the bridge since is not moved. No snapshot, or restored already, is no change.
// If it is killed, the watchdog ends it.
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
	return m.undo(ctx)
}

// Recover undoes a move that a crash left unfinished, or whose bridge has lost
// the host's addresses (somebody deleted it), and reports whether there was
// one. While a mover lives it changes nothing and returns ErrUnderWay (wrapped).
// Call it at start, and when the bridge's device is a new one.
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

// ask notes that an operator wants a move that has been made.
func (o *Options) ask(s *Snapshot) error {
	if s.Asked || !o.Asked {
		return nil
	}
	s.Asked = true
	return s.save(o.Dir)
}

// recover is Recover with the claim held.
func (o Options) recover(ctx context.Context) (bool, error) {
	s, err := Load(o.Dir, o.NIC)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (s.Phase == Restored || s.Phase == Done && s.holds()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o.Log.Warn("unfinished move of a NIC, undoing it", "nic", o.NIC, "bridge", s.Bridge, "phase", s.Phase)
	return true, (&mover{Options: o, snap: s}).undo(ctx)
}

// holds reports whether the bridge has every address that was moved to it and
// that does not end by itself.
func (s *Snapshot) holds() bool {
	bridge, err := netlink.LinkByName(s.Bridge)
	if err != nil {
		return false
	}
	have, err := addrsOf(bridge.Attrs().Index)
	if err != nil {
		return false
	}
	for _, msg := range s.Had.Addresses {
		if a, err := parseAddr(msg); err == nil && !a.dynamic() && lookup(msg, have) == nil {
			return false
		}
	}
	return true
}
