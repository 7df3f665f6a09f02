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

	moveAttempts moveAttempts
}

// watch triggers the gateway's loop when uplink, bridge or their OVSDB rows change, until ctx ends.
func (t *topology) watch(ctx context.Context, wake loop.Signal) error {
	defer t.ovs.Watch(t.isOwnRow, wake)()

	return link.Watch(ctx, t.log, func(device string) {
		anyMayHaveChanged := device == ""
		if anyMayHaveChanged || device == t.s.Uplink || device == t.s.Bridge || t.routes.watches(device) {
			wake.Trigger()
		}
	})
}

// isOwnRow reports whether an OVSDB row describes the uplink, the bridge or its patch port, or all
// of Open vSwitch.
func (t *topology) isOwnRow(table, name string) bool {
	switch table {
	case "Open_vSwitch":
		return true
	case "Bridge", "Port", "Interface":
		return name == t.s.Bridge || name == t.s.Uplink || strings.HasPrefix(name, "patch-"+t.s.Bridge)
	}

	return false
}

// checkBridge reports whether the uplink is a port of the bridge, which it must not be in layout
// direct. It returns ovs.ErrForeign (wrapped) when the layout must not use the bridge.
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
		w.Bridge, w.Uplink = w.Uplink, nic // the given uplink is the bridge
	}

	s.Wiring = w
	if w.Layout == verdict.Direct && addressesMoved(s) {
		return w, nil // the move will be undone
	}

	if s.leavesUplinkAlone() {
		return w, nil // any bridge may have a foreign owner
	}

	_, err := checkBridge(ctx, o, w)

	return w, err
}

// syncBridge configures the bridge for the layout. Afterwards it reads the bridge's device and the
// host's addresses into h again. servesServices means that the agent serves the Services of the
// host's sockets: see syncHairpin.
func (t *topology) syncBridge(ctx context.Context, h *Host, n Node, servesServices bool) error {
	if err := t.ovs.SyncBridge(ctx, t.desiredBridge(h.Uplink)); err != nil {
		return err
	}

	if h.Bridge == nil {
		if err := t.reopenDevice(ctx, h); err != nil {
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

	// ovs-vswitchd may need a moment. A change of the device starts the next round.
	if !slices.Equal(b.MAC, h.Uplink.MAC) || b.MTU != h.Uplink.MTU {
		return fmt.Errorf("bridge %s: address %s and MTU %d do not yet match uplink values %s and %d",
			t.s.Bridge, b.MAC, b.MTU, h.Uplink.MAC, h.Uplink.MTU)
	}

	return nil
}

// desiredBridge returns the bridge's configuration in OVSDB. In layout bridged, most of it belongs
// to the host.
func (t *topology) desiredBridge(uplink link.Link) ovs.Bridge {
	b := ovs.Bridge{Name: t.s.Bridge, HWAddr: uplink.MAC.String(), MTU: uplink.MTU}

	if t.s.Layout == verdict.Bridged {
		b.FailMode = ovs.FailStandalone // the host depends on the bridge, with and without flows
		b.Existing = true               // only the move creates it, with the host's addresses

		return b
	}

	b.DatapathType, b.FailMode = t.s.Datapath, ovs.FailSecure
	b.OtherConfig = map[string]string{"disable-in-band": "true"}

	if t.s.Layout == verdict.Dedicated {
		b.Uplink = t.s.Uplink
	}

	return b
}

// reopenDevice makes ovs-vswitchd open the bridge's device again after it was deleted. Only the
// userspace datapath needs this: the kernel datapath refuses to delete the device.
func (t *topology) reopenDevice(ctx context.Context, h *Host) error {
	missing := fmt.Errorf("bridge %s: device missing: is ovs-vswitchd running?", t.s.Bridge)
	if !t.s.Userspace() {
		return missing
	}

	reopened, err := t.ovs.RenewDevice(ctx, t.s.OVSRunDir, t.s.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: device deleted: %w", t.s.Bridge, err)
	}

	if !reopened {
		return missing
	}

	b, err := link.Get(t.s.Bridge)
	if err != nil {
		return err
	}

	t.record.countRepair("bridge_device")

	h.Bridge = &b

	return nil
}

// prepareBridge configures the bridge's internal port in the layouts in which OVN alone uses it. It
// stops the host's stack from sending and answering there, then sets the port up.
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
		const never = "8" // answers ARP requests for no local address
		if err := link.WriteSysctl("net/ipv4/conf/"+t.s.Bridge+"/arp_ignore", never); err != nil {
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

	// A flush may have removed the encap address's route.
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

// syncSteal attaches a filter that drops the host stack's copy of packets which OVS on the
// userspace datapath reads from the uplink. OVS takes its copy before tc ingress.
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
