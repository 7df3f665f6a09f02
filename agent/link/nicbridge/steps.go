package nicbridge

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// poll is the interval at which a device or a neighbour is checked.
const poll = 20 * time.Millisecond

// mover changes the kernel's state step by step: forward in applyMove (move.go), back in moveBack
// (restore.go). Each step checks the present state first, and changes nothing if it was done
// before. This file has the steps that both directions use. moveroutes.go has those for routes.
type mover struct {
	Options
	snap *Snapshot
	held bool // the mover holds the lock for all steps, as a restoration does
}

// do makes one change, called what in errors. If another process may hold the lock, do takes it and
// checks that the watchdog has not started to restore the NIC meanwhile.
func (m *mover) do(ctx context.Context, what string, change func() error) error {
	if m.hook != nil {
		if err := m.hook(what); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}

	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}

	if !m.held {
		unlock, err := lock(ctx, m.Dir, m.NIC)
		if err != nil {
			return err
		}
		defer unlock()

		now, err := Load(m.Dir, m.NIC)
		if err != nil {
			return err
		}

		if now.Phase != Moving {
			return fmt.Errorf("%s: %w", what, errOvertaken)
		}
	}

	if err := change(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}

	return nil
}

// send sends one message to the kernel.
func (m *mover) send(ctx context.Context, what string, kind, flags int, msg []byte) error {
	return m.do(ctx, what, func() error { return send(kind, flags, msg) })
}

// setting writes a per-interface setting with a key of readSysctls, unless the device has the value
// or lacks the setting.
func (m *mover) setting(ctx context.Context, device, key, value string) error {
	if v, ok := readSysctls(device)[key]; !ok || v == value {
		return nil
	}

	return m.do(ctx, "set "+key+" of "+device+" to "+value,
		func() error { return writeSysctl(device, key, value) })
}

// settings writes settings to a device: those of want that are not special (isSpecial), and not
// among except.
func (m *mover) settings(ctx context.Context, device string, want map[string]string, except ...string) error {
	for _, key := range differingSettings(want, readSysctls(device)) {
		if slices.Contains(except, key) {
			continue
		}

		if err := m.setting(ctx, device, key, want[key]); err != nil {
			return err
		}
	}

	return nil
}

// addAddresses adds those of the addresses that the device to lacks. msgs are messages about device
// from. The added addresses are usable at once, without duplicate address detection.
func (m *mover) addAddresses(ctx context.Context, to device, from string, msgs [][]byte) error {
	have, err := addrsOf(to.index)
	if err != nil {
		return err
	}

	for _, msg := range inOrder(msgs) {
		if lookup(msg, have) != nil {
			continue
		}

		out, err := retargetAddr(msg, from, to.name, to.index, true)
		if err != nil {
			return err
		}

		what := "add address " + addressText(msg) + " to " + to.name
		if err := m.send(ctx, what, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, out); err != nil {
			return err
		}
	}

	return nil
}

// clearNoDAD clears the flag by which addAddresses skipped duplicate address detection, unless the
// address had it in msgs. It does not start detection.
func (m *mover) clearNoDAD(ctx context.Context, to device, from string, msgs [][]byte) error {
	for _, msg := range msgs {
		a, err := parseAddr(msg)
		if err != nil || !a.is6() || a.flags&unix.IFA_F_NODAD != 0 {
			continue
		}

		have, err := addrsOf(to.index)
		if err != nil {
			return err
		}

		current := lookup(msg, have)
		if current == nil {
			continue
		}

		if c, err := parseAddr(current); err != nil || c.flags&unix.IFA_F_NODAD == 0 {
			continue
		}

		out, err := retargetAddr(renewed(msg, have), from, to.name, to.index, false)
		if err != nil {
			return err
		}

		what := "set flags of " + addressText(msg) + " on " + to.name
		if err := m.send(ctx, what, unix.RTM_NEWADDR, unix.NLM_F_REPLACE, out); err != nil {
			return err
		}
	}

	return nil
}

// deleteAddresses deletes the unwanted addresses, last added first: deleting a primary address also
// deletes its secondary ones.
func (m *mover) deleteAddresses(ctx context.Context, of device, unwanted func(msg []byte) bool) error {
	have, err := addrsOf(of.index)
	if err != nil {
		return err
	}

	for _, msg := range slices.Backward(inOrder(have)) {
		if !unwanted(msg) {
			continue
		}

		what := "delete address " + addressText(msg) + " of " + of.name
		if err := m.send(ctx, what, unix.RTM_DELADDR, 0, msg); err != nil {
			return err
		}
	}

	return nil
}

// addNeighbours adds the neighbours of the snapshot to a device. An entry that the device has
// stays, unless the snapshot's is permanent.
func (m *mover) addNeighbours(ctx context.Context, to device) error {
	have, err := neighsOf(to.index)
	if err != nil {
		return err
	}

	known := map[string]bool{}

	for _, msg := range have {
		list, _ := attrs(msg, neighHeader)
		known[string(find(list, unix.NDA_DST))] = true
	}

	for _, msg := range m.snap.Had.Neighbours {
		list, err := attrs(msg, neighHeader)
		if err != nil {
			return err
		}

		permanent := neighbourState(msg)&unix.NUD_PERMANENT != 0
		if known[string(find(list, unix.NDA_DST))] && !permanent {
			continue
		}

		out, err := retargetNeigh(msg, to.index)
		if err != nil {
			return err
		}

		what := "add neighbour " + net.IP(find(list, unix.NDA_DST)).String() + " to " + to.name

		err = m.send(ctx, what, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, out)
		if err != nil {
			return err
		}
	}

	return nil
}

// deleteNeighbours deletes the neighbours of the snapshot from a device.
func (m *mover) deleteNeighbours(ctx context.Context, of device) error {
	for _, msg := range m.snap.Had.Neighbours {
		out, err := retargetNeigh(msg, of.index)
		if err != nil {
			return err
		}

		if err := m.send(ctx, "delete neighbour of "+of.name, unix.RTM_DELNEIGH, 0, out); err != nil {
			return err
		}
	}

	return nil
}

// moveRules changes the name of the device in the rules of the snapshot. It adds each new rule
// before it deletes the old one.
func (m *mover) moveRules(ctx context.Context, from, to string) error {
	have, err := rulesNaming(to)
	if err != nil {
		return err
	}

	existing := map[string]bool{}

	for _, msg := range have {
		if msg, err = retargetRule(msg, "", ""); err != nil { // only to make it a request
			return err
		}

		existing[canonicalRule(msg)] = true
	}

	for _, msg := range m.snap.Had.Rules {
		add, err := retargetRule(msg, m.snap.NIC, to)
		if err != nil {
			return err
		}

		if !existing[canonicalRule(add)] {
			err := m.send(ctx, "add rule for "+to, unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, add)
			if err != nil {
				return err
			}
		}

		if err := m.deleteRule(ctx, msg, from); err != nil {
			return err
		}
	}

	return nil
}

// deleteRule deletes a rule of the snapshot in the form for another device.
func (m *mover) deleteRule(ctx context.Context, msg []byte, name string) error {
	old, err := retargetRule(msg, m.snap.NIC, name)
	if err != nil {
		return err
	}

	return m.send(ctx, "delete rule for "+name, unix.RTM_DELRULE, 0, old)
}

// addressText returns the address of a message for people.
func addressText(msg []byte) string {
	a, err := parseAddr(msg)
	if err != nil {
		return "?"
	}

	return a.key.String()
}

// linkNamed waits for a device and returns it.
func linkNamed(ctx context.Context, name string) (netlink.Link, error) {
	for {
		l, err := netlink.LinkByName(name)
		if err == nil {
			return l, nil
		}

		if werr := wait(ctx, poll); werr != nil {
			return nil, fmt.Errorf("wait for ovs-vswitchd to create device %s: %w", name, err)
		}
	}
}

// deviceOf returns the device of netlink as an end of a move.
func deviceOf(l netlink.Link) device { return device{l.Attrs().Name, l.Attrs().Index} }
