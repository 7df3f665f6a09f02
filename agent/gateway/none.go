package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// A node without a gateway (Cluster.None): nothing of ours is on its uplink, no
// port is reserved, and its host's sockets reach Services all the same. What an earlier
// agent had there as a gateway goes. On the userspace datapath the wiring of
// layout direct stays, for the tunnels need it; OVN is not connected to it.

// bare says that the node has no part in layout and backend.
func (s Settings) bare() bool { return s.None && !s.Userspace() }

// applyBare is apply for a node that is bare.
func (g *Gateway) applyBare(ctx context.Context, h Host) error {
	if err := g.ovs.SyncBridgeMapping(ctx, Network, ""); err != nil {
		return err
	}
	if moved(g.s) { // in layout bridged, before
		if err := g.leave(ctx, h); err != nil {
			return err
		}
		var err error
		if h, err = g.observe(); err != nil {
			return err
		}
	}
	n := nodeOf(h, g.s)
	g.noteNode(n)
	if len(n.Addresses) == 0 {
		return fmt.Errorf("%s has no address", g.s.HostDevice())
	}
	if err := g.dropPrograms(); err != nil {
		return err
	}
	if err := g.dropBridge(ctx, h); err != nil {
		return err
	}
	if err := releasePorts(g.s.RunDir); err != nil {
		return err
	}
	g.serving.plan(g.serving.serviceNode(h, n, g.s, g.factsNow()))
	g.openExtras()
	err := g.writeServices()
	if err == nil {
		g.applied.complete = true
	}
	return err
}

// dropBridge removes the gateway bridge if it is one of ours.
func (g *Gateway) dropBridge(ctx context.Context, h Host) error {
	if h.Bridge == nil {
		return nil
	}
	err := g.ovs.CheckGateway(ctx, g.s.Uplink, g.s.Bridge)
	if errors.Is(err, ovs.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	was := g.s
	was.None = false
	if err := link.RemoveHairpin(g.s.Bridge, hostHairpin(bothFamilies, was)); err != nil {
		return err
	}
	return g.ovs.RemoveBridge(ctx, g.s.Bridge)
}

// frontDoor is what has Services' front ends for packets that arrive.
func (g *Gateway) frontDoor() *bpf.Gateway {
	if g.s.None {
		return nil
	}
	return g.bpf
}

// vips are the addresses that OVN has by Services.
func (g *Gateway) vips() []netip.Addr {
	if g.s.None {
		return nil
	}
	return g.serving.vips()
}

// clearServices takes away the front ends that an earlier agent had.
func (g *Gateway) clearServices() error {
	if !g.s.None || g.applied.complete {
		return nil
	}
	return g.bpf.SyncServices(nil)
}

// mapping is the bridge that OVN's physical network is on.
func (s Settings) mapping() string {
	if s.None {
		return ""
	}
	return s.Bridge
}
