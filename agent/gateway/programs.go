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
	leftover leftover

	gw      *bpf.Gateway // nil before loading
	config  bpf.Config   // written to gw
	uplink  int          // ifindex attached to, or 0
	bridge  int
	cleared bool // with Cluster.NoGateway: frontends of an earlier agent were removed

	probing sync.Mutex                  // serializes checks of the attachments
	guarded atomic.Pointer[bpf.Gateway] // set once attached everywhere
}

// run triggers the gateway's loop when an attached program was detached or flows were lost.
func (p *programs) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.flows.run(ctx) })
	group.Go(func() error { return p.guard(ctx) })

	return group.Wait()
}

func (p *programs) guard(ctx context.Context) error {
	return loop.Every(ctx, attachedCheck, func() {
		gw := p.guarded.Load()
		if gw == nil {
			return
		}

		if uplink, bridge, err := p.attached(gw); err != nil || !uplink || !bridge {
			p.guarded.Store(nil) // until they are attached again
			p.wake.Trigger()
		}
	})
}

func (p *programs) attached(gw *bpf.Gateway) (uplink, bridge bool, err error) {
	p.probing.Lock()
	defer p.probing.Unlock()

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

	p.record.unwritten(p.gw.Unwritten())
	p.host.syncProtos(p.gw)

	if err := p.clearServices(); err != nil {
		return err
	}

	p.services.openHost(withLookup)
	p.host.openGate()

	if err := p.host.syncSockets(p.gw); err != nil {
		return err
	}

	if err := p.services.write(p.withServices()); err != nil {
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

// withServices returns the programs that serve frontends, or nil on a node without a gateway.
func (p *programs) withServices() *bpf.Gateway {
	if p.s.NoGateway {
		return nil
	}

	return p.gw
}

// clearServices removes the frontends of an earlier agent from a node without a gateway.
func (p *programs) clearServices() error {
	if !p.s.NoGateway || p.cleared {
		return nil
	}

	err := p.gw.SyncServices(nil)
	p.cleared = err == nil

	return err
}

// attach attaches the programs. The bridge comes first, because it must receive what the uplink's
// programs hand over.
func (p *programs) attach(h Host) error {
	onUplink, onBridge, err := p.attached(p.gw)
	if err != nil {
		return err
	}

	if h.Bridge != nil && (!onBridge || p.bridge != h.Bridge.Index) {
		if err := p.gw.AttachBridge(h.Bridge.Index); err != nil {
			return err
		}

		p.noteAttached("attach_bridge", &p.bridge, h.Bridge.Index)
	}

	if !onUplink || p.uplink != h.Uplink.Index {
		if err := p.gw.AttachUplink(h.Uplink.Index); err != nil {
			return err
		}

		p.noteAttached("attach_uplink", &p.uplink, h.Uplink.Index)
	}

	if h.Bridge != nil {
		p.guarded.Store(p.gw)
	}

	p.checkAhead(h.Uplink.Index)

	return nil
}

// noteAttached records that a program is attached to the device with this index. to is the field
// for the index.
func (p *programs) noteAttached(part string, to *int, index int) {
	if *to != 0 {
		p.record.repaired(part)
	}

	*to = index
	p.log.Info("program attached", "part", part, "ifindex", index)
}

// checkAhead reports foreign programs before the agent's on the uplink. Such a program may let
// packets bypass the agent's. The agent attaches at the head, so it normally decides first. A
// program attached later can still be placed before it, and stays there.
func (p *programs) checkAhead(uplink int) {
	n, err := p.gw.Ahead(uplink)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d foreign tcx programs run before the agent's on %s", n, p.s.Uplink)
	}

	p.record.degraded(partAhead, err)
}

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
	p.guarded.Store(nil)
	return p.leftover.drop()
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
