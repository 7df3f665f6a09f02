package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// clsactFuncs attach where the kernel has no tcx.
func clsactFuncs() bpf.ClsactFuncs {
	return bpf.ClsactFuncs{
		Attach: link.AttachClsact, Detach: link.DetachClsact,
		AttachAt: link.AttachClsactAt, DetachAt: link.DetachClsactAt, Attached: link.ClsactAttachedAt,
	}
}

// syncPrograms loads once and then keeps settings, tables and attachments
// right: tables before settings, settings before the attachment that uses them.
func (g *Gateway) syncPrograms(ctx context.Context, st state) error {
	if err := g.open(st.config); err != nil {
		return err
	}
	if err := g.bpf.SyncAddrs(st.addrs); err != nil {
		return err
	}
	g.syncHostProtos()
	if err := g.clearServices(); err != nil {
		return err
	}
	g.openExtras()
	if err := g.syncSockets(); err != nil {
		return err
	}
	if err := g.writeServices(); err != nil {
		return err
	}
	if err := g.seedFlows(ctx, st.node); err != nil { // nothing slow stands between this and the attachment
		return err
	}
	if !reflect.DeepEqual(st.config, g.applied.config) {
		if err := g.bpf.SetConfig(st.config); err != nil {
			return err
		}
		if g.applied.complete {
			g.log.Info("settings of the programs changed", "config", st.config)
		}
		g.applied.config = st.config
	}
	return g.attach(st.host)
}

func (g *Gateway) open(config bpf.Config) error {
	if g.bpf != nil {
		return nil
	}
	gw, err := bpf.Open(bpf.Options{
		PinDir: g.s.PinDir, Config: config, Log: g.log, Clsact: clsactFuncs(), ForceClsact: g.s.forceClsact,
		CountServices: g.s.CountServices,
	})
	if err != nil {
		return err
	}
	g.bpf, g.applied.config = gw, config
	g.counting.Store(gw)
	return nil
}

// attach puts the programs where they belong, the bridge's first: what the
// uplink's hands over must find it.
func (g *Gateway) attach(h Host) error {
	onUplink, onBridge, err := g.isAttached(g.bpf)
	if err != nil {
		return err
	}
	if h.Bridge != nil && (!onBridge || g.applied.bridge != h.Bridge.Index) {
		if err := g.bpf.AttachBridge(h.Bridge.Index); err != nil {
			return err
		}
		g.attached("attach_bridge", &g.applied.bridge, h.Bridge.Index)
	}
	if !onUplink || g.applied.uplink != h.Uplink.Index {
		if err := g.bpf.AttachUplink(h.Uplink.Index); err != nil {
			return err
		}
		g.attached("attach_uplink", &g.applied.uplink, h.Uplink.Index)
	}
	if h.Bridge != nil {
		g.guarded.Store(g.bpf)
	}
	g.checkAhead(h.Uplink.Index)
	return nil
}

// checkAhead says when somebody's program stands before ours on the uplink: it
// may let packets past ours. Ours is attached at the head, so that it decides
// before others who take what is the host's; who comes later may stand before it,
// and is not fought.
func (g *Gateway) checkAhead(uplink int) {
	n, err := g.bpf.Ahead(uplink)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d foreign tcx programs before ours on %s", n, g.s.Uplink)
	}
	g.degraded(extraAhead, err)
}

// attached notes that a program is on the device of that index; to is where.
func (g *Gateway) attached(part string, to *int, index int) {
	if *to != 0 {
		g.repaired(part)
	}
	*to = index
	g.log.Info("program attached", "part", part, "ifindex", index)
}

func (g *Gateway) isAttached(p *bpf.Gateway) (uplink, bridge bool, err error) {
	g.probe.Lock()
	defer g.probe.Unlock()
	return p.Attached()
}

// guard wakes the loop when a program that was attached no longer is.
func (g *Gateway) guard(ctx context.Context) error {
	ticker := time.NewTicker(attachedCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		p := g.guarded.Load()
		if p == nil {
			continue
		}
		if uplink, bridge, err := g.isAttached(p); err != nil || !uplink || !bridge {
			g.guarded.Store(nil) // until they are attached again
			g.wake.Kick()
		}
	}
}

// syncSockets looks for sockets of the host inside the SNAT range. The range
// is reserved, so new ones come only from an explicit bind: now and then is
// often enough. Where the kernel does not list them, programs ask it at every
// packet; flows cannot, and it is an error.
func (g *Gateway) syncSockets() error {
	if time.Since(g.applied.socketsAt) < resync {
		return nil
	}
	sockets, scan := link.Sockets(g.s.SNATPorts.First, g.s.SNATPorts.Last)
	g.degraded(extraScan, scan)
	if scan != nil && g.bpf == nil {
		return scan
	}
	if err := g.syncGate(); err != nil {
		return err
	}
	if scan != nil {
		g.applied.socketsAt = time.Now()
		return nil
	}
	now := listeners(sockets)
	for _, s := range now {
		if !slices.Contains(listeners(g.applied.sockets), s) {
			g.log.Warn("a host socket listens inside the SNAT port range; it wins over pods there, at a cost per packet",
				"local", s.Local, "protocol", s.Proto)
		}
	}
	g.applied.sockets, g.applied.socketsAt = sockets, time.Now()
	g.mu.Lock()
	g.stats.Listeners = len(now)
	g.mu.Unlock()
	return nil
}

// pass makes the programs leave everything to the host.
func (g *Gateway) pass() error {
	if g.bpf == nil || g.applied.config.Bridge == 0 {
		return nil
	}
	c := g.applied.config
	c.Bridge = 0
	if err := g.bpf.SetConfig(c); err != nil {
		return err
	}
	g.applied.config = c
	return nil
}

// dropPrograms takes programs of ours off a node whose flows do their work now.
func (g *Gateway) dropPrograms() error {
	if g.applied.dropped {
		return nil
	}
	if !hooked(g.s.PinDir) { // pinned is at most what the host's sockets go on with
		err := removeFilters()
		g.applied.dropped = err == nil
		return err
	}
	idle := g.idle
	if g.idle = nil; idle == nil {
		var err error
		if idle, err = openIdle(g.s, g.log); err != nil {
			return err
		}
	}
	err := takeDown(idle)
	g.applied.dropped = err == nil
	return err
}

// nodeAddrs are those with NodePorts: all of the node's own, as in the
// controller's load balancers, and the gateway router's.
func nodeAddrs(n Node) []netip.Addr {
	out := addrsOf(n.HostCIDRs)
	for _, a := range addrsOf(n.Addresses) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
