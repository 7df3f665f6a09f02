package gateway

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// syncPrograms loads once and then keeps settings, tables and attachments
// right: tables before settings, settings before the attachment that uses them.
func (g *Gateway) syncPrograms(h Host, n Node) error {
	config := programConfig(h, n, g.s)
	if err := g.open(config); err != nil {
		return err
	}
	if err := g.bpf.SyncHostAddrs(hostAddrs(h)); err != nil {
		return err
	}
	if err := g.syncSockets(); err != nil {
		return err
	}
	if services, ok := g.services(); ok {
		if !g.s.NodePorts {
			services = nil
		}
		if err := g.bpf.SyncServices(serviceKeys(services, nodeAddrs(n))); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(config, g.applied.config) {
		if err := g.bpf.SetConfig(config); err != nil {
			return err
		}
		if g.applied.complete {
			g.repaired("config")
		}
		g.applied.config = config
	}
	return g.attach(h)
}

func (g *Gateway) open(config bpf.Config) error {
	if g.bpf != nil {
		return nil
	}
	gw, err := bpf.Open(bpf.Options{
		PinDir: g.s.PinDir, Config: config, Log: g.log,
		Clsact: bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact},
	})
	if err != nil {
		return err
	}
	g.bpf, g.applied.config = gw, config
	return nil
}

// attach puts the programs where they belong, the bridge's first: what the
// uplink's hands over must find it.
func (g *Gateway) attach(h Host) error {
	onUplink, onBridge, err := g.bpf.Attached()
	if err != nil {
		return err
	}
	// A clsact filter that somebody deleted cannot be seen, but attaching
	// replaces atomically, so now and then it is done anyway.
	again := time.Since(g.applied.attached) > resync
	if h.Bridge != nil && (again || !onBridge || g.applied.bridge != h.Bridge.Index) {
		if err := g.bpf.AttachBridge(h.Bridge.Index); err != nil {
			return err
		}
		g.attached("attach_bridge", onBridge, &g.applied.bridge, h.Bridge.Index)
	}
	if again || !onUplink || g.applied.uplink != h.Uplink.Index {
		if err := g.bpf.AttachUplink(h.Uplink.Index); err != nil {
			return err
		}
		g.attached("attach_uplink", onUplink, &g.applied.uplink, h.Uplink.Index)
	}
	if again {
		g.applied.attached = time.Now()
	}
	return nil
}

// attached notes that a program is on the device of that index; was says that
// it had been somewhere, to is where.
func (g *Gateway) attached(part string, was bool, to *int, index int) {
	if was && *to == index {
		return // once more, to be sure
	}
	if *to != 0 {
		g.repaired(part)
	}
	*to = index
	g.log.Info("program attached", "part", part, "ifindex", index)
}

// syncSockets looks for sockets of the host inside the SNAT range. The range
// is reserved, so new ones come only from an explicit bind: now and then is
// often enough.
func (g *Gateway) syncSockets() error {
	if time.Since(g.applied.sockets) < resync {
		return nil
	}
	sockets, err := link.Sockets(g.s.SNATPorts.First, g.s.SNATPorts.Last)
	if err != nil {
		return err
	}
	if err := g.bpf.SyncHostSockets(socketKeys(sockets)); err != nil {
		return err
	}
	g.applied.sockets = time.Now()
	now := listeners(sockets)
	for _, s := range now {
		if !slices.Contains(g.applied.listeners, s) {
			g.log.Warn("a host socket listens inside the SNAT port range; it wins over pods there, at a cost per packet",
				"local", s.Local, "protocol", s.Proto)
		}
	}
	g.applied.listeners = now
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

// nodeAddrs are those with NodePorts: all of the node's own, as in the
// controller's load balancers.
func nodeAddrs(n Node) []netip.Addr {
	var out []netip.Addr
	for _, p := range n.HostCIDRs {
		out = append(out, p.Addr())
	}
	return out
}
