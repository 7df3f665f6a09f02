package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
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
	h, at, err := g.settleBare(ctx, h)
	if err != nil {
		return err
	}
	n := nodeOf(h, at)
	g.noteNode(n)
	if len(n.Addresses) == 0 {
		return fmt.Errorf("%s has no address", at.HostDevice())
	}
	if err := g.dropPrograms(); err != nil {
		return err
	}
	if at.Layout != Bridged {
		if err := g.dropBridge(ctx, h); err != nil {
			return err
		}
	}
	if err := releasePorts(g.s.RunDir); err != nil {
		return err
	}
	g.serving.plan(g.serving.serviceNode(h, n, g.s, g.factsNow()))
	g.openExtras()
	err = g.writeServices()
	if err == nil {
		g.applied.complete = true
	}
	return err
}

// settleBare returns the host, and where its addresses are: on the uplink, or on the bridge if an
// operator has moved them there. It returns nicbridge.ErrUnderWay (wrapped) during a move.
func (g *Gateway) settleBare(ctx context.Context, h Host) (Host, Settings, error) {
	if _, err := nicbridge.Load(g.s.RunDir, g.s.Uplink); errors.Is(err, fs.ErrNotExist) {
		return h, g.s, nil
	}
	if _, err := nicbridge.Recover(ctx, mover(g.s, g.ovs)); err != nil {
		return h, g.s, err
	}
	snapshot, err := nicbridge.Load(g.s.RunDir, g.s.Uplink)
	if err != nil {
		return h, g.s, err
	}
	at := g.s
	switch {
	case snapshot.Phase != nicbridge.Done:
	case snapshot.Asked && snapshot.Bridge == g.s.Bridge:
		at = g.s.placed(Bridged)
	default: // in layout bridged, before
		if err := g.leave(ctx, h); err != nil {
			return h, g.s, err
		}
	}
	h, err = g.observe() // since then it may be another
	return h, at, err
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
	// A move that begins after this makes the bridge again.
	return nicbridge.Undisturbed(g.s.RunDir, g.s.Uplink, func() error {
		if s, err := nicbridge.Load(g.s.RunDir, g.s.Uplink); err == nil && s.Phase != nicbridge.Restored {
			return fmt.Errorf("remove bridge %s: %w", g.s.Bridge, nicbridge.ErrUnderWay)
		}
		if err := link.RemoveHairpin(g.s.Bridge, hostHairpin(bothFamilies, was)); err != nil {
			return err
		}
		return g.ovs.RemoveBridge(ctx, g.s.Bridge)
	})
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
