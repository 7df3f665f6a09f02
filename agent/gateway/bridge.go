package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// checkBridge returns ovs.ErrForeign (wrapped) when the layout may not have the
// bridge, and whether the uplink is a port of it.
func checkBridge(ctx context.Context, o *ovs.Client, w Wiring) (member bool, err error) {
	if w.Layout == Bridged || w.Layout == Dedicated {
		return o.CheckMember(ctx, w.Uplink, w.Bridge)
	}
	return false, o.CheckGateway(ctx, w.Uplink, w.Bridge)
}

// Resolve completes the wiring with what OVS knows: in layout bridged the
// uplink may be given by its bridge's name, and the bridge may have any name. So it
// may in layout direct where the agent itself has made the bridge the host's.
// It returns ovs.ErrForeign (wrapped) when the layout may not have the bridge.
func Resolve(ctx context.Context, o *ovs.Client, s Settings) (Wiring, error) {
	w := s.Wiring
	if w.Layout == Bridged {
		bridge, uplink, err := o.GatewayBridge(ctx, w.Uplink)
		if err != nil {
			return w, err
		}
		if bridge != "" {
			w.Bridge, w.Uplink = bridge, uplink
		}
	}
	if nic := movedBy(s.RunDir, w.Uplink); nic != "" && w.Layout == Direct {
		w.Bridge, w.Uplink = w.Uplink, nic
	}
	if s.Wiring = w; w.Layout == Direct && moved(s) {
		return w, nil // will be undone
	}
	if s.bare() {
		return w, nil // any bridge is somebody's
	}
	_, err := checkBridge(ctx, o, w)
	return w, err
}

// syncBridge makes the bridge what the layout wants, and reads its internal
// port again after changing it.
func (g *Gateway) syncBridge(ctx context.Context, h *Host, n Node) error {
	want := ovs.Bridge{Name: g.s.Bridge, HWAddr: h.Uplink.MAC.String(), MTU: h.Uplink.MTU}
	if g.s.Layout == Bridged {
		want.FailMode = ovs.FailStandalone // the host hangs on it; everything else there is the host's
		want.Existing = true               // the move makes it: one that was deleted since has not the host's addresses
	} else {
		want.DatapathType, want.FailMode = g.s.Datapath, ovs.FailSecure
		want.OtherConfig = map[string]string{"disable-in-band": "true"}
	}
	if g.s.Layout == Dedicated {
		want.Uplink = g.s.Uplink
	}
	if err := g.ovs.SyncBridge(ctx, want); err != nil {
		return err
	}
	if h.Bridge == nil {
		if err := g.renewBridge(ctx, h); err != nil {
			return err
		}
	}
	if g.s.Layout != Bridged {
		if err := g.prepareBridge(n); err != nil {
			return err
		}
	}
	if err := g.syncHairpin(n); err != nil {
		return err
	}
	b, err := link.Get(g.s.Bridge)
	if err != nil {
		return err
	}
	h.Bridge = &b
	if h.Addresses, err = link.Addresses(); err != nil {
		return err
	}
	if !slices.Equal(b.MAC, h.Uplink.MAC) || b.MTU != want.MTU {
		return fmt.Errorf("bridge %s: address %s and MTU %d do not follow the uplink's %s and %d yet", g.s.Bridge, b.MAC, b.MTU, h.Uplink.MAC, h.Uplink.MTU)
	}
	return nil
}

// renewBridge makes ovs-vswitchd open the bridge's device again, after it was deleted.
// The kernel datapath refuses to delete it.
func (g *Gateway) renewBridge(ctx context.Context, h *Host) error {
	if g.s.Userspace() {
		renewed, err := g.ovs.RenewDevice(ctx, g.s.OVSRunDir, g.s.Bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: its device is gone: %w", g.s.Bridge, err)
		}
		if renewed {
			b, err := link.Get(g.s.Bridge)
			if err == nil {
				g.repaired("bridge_device")
				h.Bridge = &b
			}
			return err
		}
	}
	return fmt.Errorf("bridge %s: its device is not there yet: is ovs-vswitchd running?", g.s.Bridge)
}

// prepareBridge keeps the host's stack from talking on the internal port,
// then brings it up.
func (g *Gateway) prepareBridge(n Node) error {
	if g.wantsIPv6(n) {
		// Its own link-local address would be the uplink's: they have one MAC.
		const none = "1" // IN6_ADDR_GEN_MODE_NONE
		if err := link.WriteSysctl("net/ipv6/conf/"+g.s.Bridge+"/addr_gen_mode", none); err != nil {
			return err
		}
		if err := link.QuietIPv6(g.s.Bridge); err != nil {
			return err
		}
	} else if err := link.DisableIPv6(g.s.Bridge); err != nil {
		return err
	}
	if !g.s.Userspace() {
		if err := link.WriteSysctl("net/ipv4/conf/"+g.s.Bridge+"/arp_ignore", "8"); err != nil {
			return err
		}
	}
	if err := link.SetUp(g.s.Bridge); err != nil {
		return err
	}
	want := bridgeAddresses(g.s)
	for _, a := range hostHairpin(n, g.s).Addresses {
		want = append(want, single(a)) // syncHairpin's
	}
	return link.SyncAddresses(g.s.Bridge, want)
}

// wantsIPv6 reports whether the bridge's internal port has an IPv6 address of ours.
func (g *Gateway) wantsIPv6(n Node) bool {
	if g.s.Userspace() && g.s.Encap.Addr().Is6() {
		return true
	}
	return slices.ContainsFunc(hostHairpin(n, g.s).Addresses, netip.Addr.Is6)
}
