package gateway

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// programs is the backend of eBPF programs at uplink and bridge. The flows beside them are static.
type programs struct {
	parts
	earlier earlierPrograms

	gw              *bpf.Gateway // nil before loading
	config          bpf.Config   // written to gw
	uplinkIndex     int          // of the device attached to, or 0
	bridgeIndex     int
	servicesCleared bool // with Cluster.NoGateway: frontends of an earlier agent were removed

	checkMu sync.Mutex                  // serializes checks of the attachments
	watched atomic.Pointer[bpf.Gateway] // programs whose attachments watchAttachments checks; nil: none
}

// run triggers the gateway's loop when an attached program was detached or flows were lost.
func (p *programs) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.flows.run(ctx) })
	group.Go(func() error { return p.watchAttachments(ctx) })

	return group.Wait()
}

// watchAttachments triggers the gateway's loop when programs that were attached to uplink and
// bridge no longer are.
func (p *programs) watchAttachments(ctx context.Context) error {
	return loop.Every(ctx, attachedCheck, func() {
		gw := p.watched.Load()
		if gw == nil {
			return
		}

		if onUplink, onBridge, err := p.areAttached(gw); err != nil || !onUplink || !onBridge {
			p.watched.Store(nil) // until attach has attached them again
			p.wake.Trigger()
		}
	})
}

func (p *programs) areAttached(gw *bpf.Gateway) (onUplink, onBridge bool, err error) {
	p.checkMu.Lock()
	defer p.checkMu.Unlock()

	return gw.Attached()
}

// sync applies the programs before the flows, because the flows send OVN's packets to the programs.
func (p *programs) sync(ctx context.Context, st state) error {
	if err := p.syncHooks(ctx, st); err != nil || st.host.Bridge == nil {
		return err
	}

	return p.syncFlows(ctx, st)
}

func (p *programs) syncFlows(ctx context.Context, st state) error {
	return p.flows.sync(ctx, st, p.flows.planStatic)
}

// syncHooks loads the programs once, then keeps settings, tables and attachments up to date. Tables
// come before settings, and settings before the attachment that uses them.
func (p *programs) syncHooks(ctx context.Context, st state) error {
	if err := p.prepare(st.config); err != nil {
		return err
	}

	if err := p.gw.SyncAddrs(st.addrs); err != nil {
		return err
	}

	p.record.setUnwritten(p.gw.Unwritten())
	p.host.syncProtos(p.gw)

	if err := p.clearServices(); err != nil {
		return err
	}

	p.services.openHost(withLookup)
	p.host.ensureGate()

	if err := p.host.syncSockets(p.gw); err != nil {
		return err
	}

	if err := p.services.write(p.servingPrograms()); err != nil {
		return err
	}

	// No slow step may come between this and the attachment.
	if err := p.tracker.seed(ctx, p.gw, st.node); err != nil {
		return err
	}

	if !reflect.DeepEqual(st.config, p.config) {
		if err := p.gw.SetConfig(st.config); err != nil {
			return err
		}

		if st.wasInPlace { // at the start, the configuration is logged anyway
			p.log.Info("program settings changed", "config", st.config)
		}

		p.config = st.config
	}

	return p.attach(st.host)
}

// prepare loads the programs, which takes a second or more.
func (p *programs) prepare(config bpf.Config) error {
	if p.gw != nil {
		return nil
	}

	gw, err := bpf.Open(bpf.Options{
		PinDir:        p.s.PinDir,
		Config:        config,
		Log:           p.log,
		Clsact:        clsactFuncs(),
		ForceClsact:   p.s.forceClsact,
		Sizes:         p.s.sizes,
		CountServices: p.s.CountServices,
		Shortcuts:     bpf.ShortcutOptions{On: p.s.NoShortcuts() == ""},
	})
	if err != nil {
		return err
	}

	p.gw, p.config = gw, config
	p.shortcuts.usePrograms(gw)

	return nil
}

// servingPrograms returns the programs that serve frontends, or nil on a node without a gateway.
func (p *programs) servingPrograms() *bpf.Gateway {
	if p.s.NoGateway {
		return nil
	}

	return p.gw
}

// clearServices removes the frontends of an earlier agent on a node without a gateway.
func (p *programs) clearServices() error {
	if !p.s.NoGateway || p.servicesCleared {
		return nil
	}

	err := p.gw.SyncServices(nil)
	p.servicesCleared = err == nil

	return err
}

// attach attaches the programs. The bridge comes first, because it must receive what the uplink's
// programs hand over.
func (p *programs) attach(h Host) error {
	onUplink, onBridge, err := p.areAttached(p.gw)
	if err != nil {
		return err
	}

	if h.Bridge != nil && (!onBridge || p.bridgeIndex != h.Bridge.Index) {
		if err := p.gw.AttachBridge(h.Bridge.Index); err != nil {
			return err
		}

		p.noteAttached("attach_bridge", &p.bridgeIndex, h.Bridge.Index)
	}

	if !onUplink || p.uplinkIndex != h.Uplink.Index {
		if err := p.gw.AttachUplink(h.Uplink.Index); err != nil {
			return err
		}

		p.noteAttached("attach_uplink", &p.uplinkIndex, h.Uplink.Index)
	}

	if h.Bridge != nil {
		p.watched.Store(p.gw)
	}

	p.reportForeignAhead(h.Uplink.Index)

	return nil
}

// noteAttached records that a program is attached to the device with this index. field is the one
// of p for the index. If it was attached before, this is a repair.
func (p *programs) noteAttached(part string, field *int, index int) {
	if *field != 0 {
		p.record.countRepair(part)
	}

	*field = index
	p.log.Info("program attached", "part", part, "ifindex", index)
}

// reportForeignAhead reports foreign programs before the agent's on the uplink. Such a program may
// let packets bypass the agent's. The agent attaches at the head, so it normally decides first. A
// program attached later can still be placed before it, and stays there.
func (p *programs) reportForeignAhead(uplink int) {
	n, err := p.gw.Ahead(uplink)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d foreign tcx programs run before the agent's on %s", n, p.s.Uplink)
	}

	p.record.setFault(partAhead, err)
}

// passToHost sets the settings for a node without a bridge (see programConfig).
func (p *programs) passToHost() error {
	if p.gw == nil || p.config.Bridge == 0 {
		return nil
	}

	c := p.config
	c.Bridge = 0

	if err := p.gw.SetConfig(c); err != nil {
		return err
	}

	p.config = c

	return nil
}

func (p *programs) detach() error {
	p.watched.Store(nil)
	return p.earlier.remove()
}

func (p *programs) counters(context.Context) ([]bpf.Counter, error) {
	return bpf.ReadCounters(p.s.PinDir)
}

func (p *programs) close() error {
	p.host.close()

	if p.gw == nil {
		return nil
	}

	return p.gw.Close()
}
