package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// topology wires uplink, bridge and host as the layout requires. Only the gateway's loop uses it.
type topology struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder
	flows  *flowTable
	routes *routeKeeper
	moves  moves
}

// watch triggers the gateway's loop when uplink, bridge or their OVSDB rows change, until ctx ends.
func (t *topology) watch(ctx context.Context, wake loop.Signal) error {
	defer t.ovs.Watch(t.concerned, wake)()

	return link.Watch(ctx, t.log, func(device string) {
		if device == "" || device == t.s.Uplink || device == t.s.Bridge || t.routes.watches(device) {
			wake.Trigger()
		}
	})
}

// concerned reports whether an OVSDB row describes the uplink or the bridge.
func (t *topology) concerned(table, name string) bool {
	switch table {
	case "Open_vSwitch":
		return true
	case "Bridge", "Port", "Interface":
		return name == t.s.Bridge || name == t.s.Uplink || strings.HasPrefix(name, "patch-"+t.s.Bridge)
	}

	return false
}

// checkBridge reports whether the uplink is a port of the bridge. It returns ovs.ErrForeign
// (wrapped) when the layout must not use the bridge.
func checkBridge(ctx context.Context, o *ovs.Client, w Wiring) (member bool, err error) {
	if w.Layout == verdict.Bridged || w.Layout == verdict.Dedicated {
		return o.CheckMember(ctx, w.Uplink, w.Bridge)
	}

	return false, o.CheckGateway(ctx, w.Uplink, w.Bridge)
}

// Resolve completes the wiring with facts from OVSDB:
//
//   - In layout bridged, the uplink may be given by its bridge's name, and the bridge may have any
//     name.
//   - In layout direct the same holds for a bridge to which the agent itself moved the host's
//     addresses.
//
// It returns ovs.ErrForeign (wrapped) when the layout must not use the bridge.
func Resolve(ctx context.Context, o *ovs.Client, s Settings) (Wiring, error) {
	w := s.Wiring
	if w.Layout == verdict.Bridged {
		bridge, uplink, err := o.GatewayBridge(ctx, w.Uplink)
		if err != nil {
			return w, err
		}

		if bridge != "" {
			w.Bridge, w.Uplink = bridge, uplink
		}
	}

	if nic := nicOfMove(s.RunDir, w.Uplink); nic != "" && w.Layout == verdict.Direct {
		w.Bridge, w.Uplink = w.Uplink, nic
	}

	if s.Wiring = w; w.Layout == verdict.Direct && addressesMoved(s) {
		return w, nil // the move will be undone
	}

	if s.leavesUplinkAlone() {
		return w, nil // any bridge may have a foreign owner
	}

	_, err := checkBridge(ctx, o, w)

	return w, err
}

// syncBridge configures the bridge for the layout and reads its internal port again after a change.
// servesServices means that the agent serves the Services of the host's sockets: see syncHairpin.
func (t *topology) syncBridge(ctx context.Context, h *Host, n Node, servesServices bool) error {
	want := ovs.Bridge{Name: t.s.Bridge, HWAddr: h.Uplink.MAC.String(), MTU: h.Uplink.MTU}
	if t.s.Layout == verdict.Bridged {
		want.FailMode = ovs.FailStandalone // the host depends on the bridge; its other settings belong to the host
		want.Existing = true               // only the move creates it, with the host's addresses
	} else {
		want.DatapathType, want.FailMode = t.s.Datapath, ovs.FailSecure
		want.OtherConfig = map[string]string{"disable-in-band": "true"}
	}

	if t.s.Layout == verdict.Dedicated {
		want.Uplink = t.s.Uplink
	}

	if err := t.ovs.SyncBridge(ctx, want); err != nil {
		return err
	}

	if h.Bridge == nil {
		if err := t.renewBridge(ctx, h); err != nil {
			return err
		}
	}

	if t.s.Layout != verdict.Bridged {
		if err := t.prepareBridge(n); err != nil {
			return err
		}
	}

	if err := t.syncHairpin(n, servesServices); err != nil {
		return err
	}

	b, err := link.Get(t.s.Bridge)
	if err != nil {
		return err
	}

	h.Bridge = &b
	if h.Addresses, err = link.Addresses(); err != nil {
		return err
	}

	if !slices.Equal(b.MAC, h.Uplink.MAC) || b.MTU != want.MTU {
		return fmt.Errorf("bridge %s: address %s and MTU %d do not yet match uplink values %s and %d",
			t.s.Bridge, b.MAC, b.MTU, h.Uplink.MAC, h.Uplink.MTU)
	}

	return nil
}

// renewBridge makes ovs-vswitchd open the bridge's device again after it was deleted. Only the
// userspace datapath needs this: the kernel datapath refuses to delete the device.
func (t *topology) renewBridge(ctx context.Context, h *Host) error {
	if t.s.Userspace() {
		renewed, err := t.ovs.RenewDevice(ctx, t.s.OVSRunDir, t.s.Bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: device deleted: %w", t.s.Bridge, err)
		}

		if renewed {
			b, err := link.Get(t.s.Bridge)
			if err == nil {
				t.record.repaired("bridge_device")

				h.Bridge = &b
			}

			return err
		}
	}

	return fmt.Errorf("bridge %s: device missing: is ovs-vswitchd running?", t.s.Bridge)
}

// prepareBridge stops the host's stack from sending on the internal port, then sets the port up.
func (t *topology) prepareBridge(n Node) error {
	if t.wantsIPv6(n) {
		// A generated link-local address would equal the uplink's, because both have the same MAC.
		const none = "1" // IN6_ADDR_GEN_MODE_NONE
		if err := link.WriteSysctl("net/ipv6/conf/"+t.s.Bridge+"/addr_gen_mode", none); err != nil {
			return err
		}

		if err := link.QuietIPv6(t.s.Bridge); err != nil {
			return err
		}
	} else if err := link.DisableIPv6(t.s.Bridge); err != nil {
		return err
	}

	if !t.s.Userspace() {
		if err := link.WriteSysctl("net/ipv4/conf/"+t.s.Bridge+"/arp_ignore", "8"); err != nil {
			return err
		}
	}

	if err := link.SetUp(t.s.Bridge); err != nil {
		return err
	}

	want := bridgeAddresses(t.s)
	for _, a := range hostHairpin(n, t.s).Addresses {
		want = append(want, hostPrefix(a)) // owned by syncHairpin
	}

	if err := link.SyncAddresses(t.s.Bridge, want); err != nil {
		return err
	}

	_, err := link.RestoreConnectedRoutes(t.s.Bridge, bridgeAddresses(t.s))

	return err
}

// wantsIPv6 reports whether the agent puts an IPv6 address on the bridge's internal port.
func (t *topology) wantsIPv6(n Node) bool {
	if t.s.Userspace() && t.s.Encap.Addr().Is6() {
		return true
	}

	return slices.ContainsFunc(hostHairpin(n, t.s).Addresses, netip.Addr.Is6)
}

// stealFilter is the name of the bpf.Steal filter.
const stealFilter = "ovnebpf_steal"

// syncSteal drops the host stack's copy of packets that OVS on the userspace datapath reads from
// the uplink. OVS takes its copy before tc ingress.
func (t *topology) syncSteal(uplink int) error {
	if !t.s.Userspace() || t.s.Layout == verdict.Direct || link.ClsactAttached(uplink, stealFilter, false) {
		return nil
	}

	steal, err := bpf.NewSteal(clsactFuncs())
	if err != nil {
		return err
	}
	defer steal.Close() // the filter stays attached

	return steal.Attach(uplink)
}
