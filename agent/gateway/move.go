package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// mover returns what nicbridge needs.
func mover(s Settings, o *ovs.Client) nicbridge.Options {
	return nicbridge.Options{
		NIC: s.Uplink, Bridge: s.Bridge, Dir: s.RunDir, Watchdog: s.Watchdog,
		Switch: HostSwitch(o, s.Datapath, s.PinDir),
	}
}

// moved reports whether the host's addresses are on the bridge because
// nicbridge has moved them there.
func moved(s Settings) bool {
	snapshot, err := nicbridge.Load(s.RunDir, s.Uplink)
	return err == nil && snapshot.Phase == nicbridge.Done
}

// movedBy returns the NIC whose addresses were moved to the bridge, "" if they
// were not.
func movedBy(rundir, bridge string) string {
	nic := strings.TrimPrefix(bridge, "br")
	snapshot, err := nicbridge.Load(rundir, nic)
	if err != nil || snapshot.Phase != nicbridge.Done || snapshot.Bridge != bridge {
		return ""
	}
	return nic
}

// Moving returns nicbridge.ErrUnderWay (wrapped) while a living process moves a NIC of the node
// to a bridge or back.
func Moving(rundir string) error {
	nic, err := nicbridge.UnderWay(rundir)
	if err == nil && nic != "" {
		err = fmt.Errorf("uplink %s: %w", nic, nicbridge.ErrUnderWay)
	}
	return err
}

// Recover undoes a move of the uplink that a crash left unfinished.
func Recover(ctx context.Context, s Settings, o *ovs.Client) error {
	if _, err := nicbridge.Load(s.RunDir, s.Uplink); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := nicbridge.Recover(ctx, mover(s, o))
	return err
}

// join makes the uplink a port of the bridge and moves the host's addresses to
// the bridge. What decides whose a packet is changes over at the moment OVS has the
// uplink: before that moment the one for the layout of before is right, after it
// the new one, and to pass everything meanwhile would have the host's stack
// reset OVN's connections.
func (g *Gateway) join(ctx context.Context, h Host, n Node) error {
	own := func(a link.Address) bool { return a.Device == g.s.Uplink && !a.LinkLocal }
	if !slices.ContainsFunc(h.Addresses, own) {
		return g.rejoin(ctx, h)
	}
	if g.s.VLAN != 0 { // the host's network has no tag, so behind one the host would be cut off
		return fmt.Errorf("gateway VLAN %d: the host's addresses are on %s itself: put them on bridge %s, behind the tag, first", g.s.VLAN, g.s.Uplink, g.s.Bridge)
	}
	if err := g.moves.next(time.Now()); err != nil {
		return err
	}
	// What is slow comes first: loading programs takes a second or more.
	if err := g.prepareMove(h, n); err != nil {
		return err
	}
	g.applied.moving = true
	defer func() { g.applied.moving = false }()
	o := mover(g.s, g.ovs)
	o.Log = g.log
	o.Carry = g.carry
	g.log.Info("moving the host's addresses to the bridge", "uplink", g.s.Uplink, "bridge", g.s.Bridge)
	if err := nicbridge.Move(ctx, o); err != nil {
		return err
	}
	g.flows.Store(true)
	return nil
}

// rejoin is join for an uplink without addresses, which somebody has taken out of the
// bridge, or whose bridge somebody has deleted with the host's addresses.
func (g *Gateway) rejoin(ctx context.Context, h Host) error {
	switch {
	case len(nodeOf(h, g.s).Addresses) > 0:
		g.repaired("uplink_port")
		g.flows.Store(true)
		return HostSwitch(g.ovs, g.s.Datapath, g.s.PinDir).AddPort(ctx, g.s.Bridge, g.s.Uplink)
	case moved(g.s):
		return Recover(ctx, g.s, g.ovs)
	default:
		return fmt.Errorf("uplink %s is no port of bridge %s and has no addresses that could be moved there", g.s.Uplink, g.s.Bridge)
	}
}

// moves spaces the attempts to move the host's addresses. Each that is undone, here
// or by the watchdog, has interrupted the host.
type moves struct {
	tried int
	again time.Time // not before
}

const (
	firstMoveWait = time.Minute
	mostDoublings = 6 // about an hour
)

// next returns an error while it is too early for another attempt.
func (m *moves) next(now time.Time) error {
	if now.Before(m.again) {
		return fmt.Errorf("the host's addresses were given back to the uplink: not moved to the bridge again before %s", m.again.Format(time.TimeOnly))
	}
	m.again = now.Add(firstMoveWait << min(m.tried, mostDoublings))
	m.tried++
	return nil
}

func (g *Gateway) prepareMove(h Host, n Node) error {
	if h.Bridge != nil && g.s.Userspace() { // tunnels end at the host's address now
		if err := link.SyncAddresses(g.s.Bridge, nil); err != nil {
			return err
		}
	}
	if g.s.Backend == EBPF {
		return g.open(programConfig(h, n, g.s, facts{}))
	}
	if g.applied.dropped || !hooked(g.s.PinDir) {
		return nil
	}
	var err error
	g.idle, err = openIdle(g.s, g.log)
	return err
}

// carry is called when the uplink has just become a port: flows first, which
// carry the host whatever the programs do, then the programs.
func (g *Gateway) carry(ctx context.Context) error {
	h, err := g.observe()
	if err != nil {
		return err
	}
	st := g.state(h, nodeOf(h, g.s))
	if err := errors.Join(g.syncSteal(h.Uplink.Index), g.carryFlows(ctx, st)); err != nil {
		return err
	}
	if g.s.Backend == EBPF {
		return g.syncPrograms(ctx, st)
	}
	return g.dropPrograms()
}

// carryFlows writes the flows while vswitchd may still be busy with the port.
func (g *Gateway) carryFlows(ctx context.Context, st state) error {
	var err error
	for range 5 {
		if err = g.syncFlows(ctx, st); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return err
}

// leave takes the uplink out of the bridge again and gives it the host's
// addresses back.
func (g *Gateway) leave(ctx context.Context, h Host) error {
	st := g.state(h, nodeOf(h, g.s.placed(Bridged))) // where the addresses are now
	if err := g.open(st.config); err != nil {
		return err
	}
	o := mover(g.s, g.ovs)
	o.Log = g.log
	o.Switch = handover{
		Switch: ovs.HostSwitch{Client: g.ovs, DatapathType: g.s.Datapath},
		before: func() error { return g.syncPrograms(ctx, st) },
	}
	g.log.Info("giving the uplink its addresses back", "uplink", g.s.Uplink, "bridge", g.s.Bridge)
	if err := nicbridge.Restore(ctx, o); err != nil {
		return err
	}
	g.flows.Store(true)
	return nil
}
