package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// applied is what the loop has already done, to tell a repair from a first
// time and to leave out what costs a process or a dump of all sockets. It is
// never taken for the state of the kernel.
type applied struct {
	config    bpf.Config
	uplink    int // ifindex attached to, 0 = none
	bridge    int
	node      Node
	listeners []link.Socket
	sockets   time.Time // last scan
	attached  time.Time // last attachment
	flowsAt   time.Time // last comparison
	complete  bool      // everything was right once
}

// apply brings everything in line with the host as it is now. What does not
// depend on a failed part is done all the same.
func (g *Gateway) apply(ctx context.Context) error {
	if err := reservePorts(g.s.RunDir, g.s.reserved()); err != nil {
		return err
	}
	h, err := observe(g.s.Uplink, g.s.Bridge)
	if err != nil {
		return errors.Join(err, g.pass())
	}
	// Also while running: an operator may bridge the NIC, and move the host's
	// addresses to a bridge that would be stripped of them here.
	if err := g.ovs.CheckGateway(ctx, g.s.Uplink, g.s.Bridge); err != nil {
		return errors.Join(err, g.pass())
	}
	n := nodeOf(h, g.s.NextHops, g.s.NotHost)
	if !reflect.DeepEqual(n, g.applied.node) {
		g.applied.node = n
		g.publish(n)
		for _, p := range n.stranded() {
			g.log.Warn("no next hop: no default route by the uplink and no --gateway-nexthop; pods reach only its own network",
				"uplink", g.s.Uplink, "address", p)
		}
	}
	if len(n.Addresses) == 0 {
		return errors.Join(fmt.Errorf("uplink %s has no address", g.s.Uplink), g.pass())
	}
	errUplink := link.DisableLRO(g.s.Uplink)
	errBridge := g.syncBridge(ctx, &h)
	errPrograms := g.syncPrograms(h, n)
	errFlows := g.syncFlows(ctx, h, errPrograms)
	err = errors.Join(errUplink, errBridge, errPrograms, errFlows)
	if err == nil {
		g.applied.complete = true
	}
	return err
}

// observe reads the host.
func observe(uplink, bridge string) (Host, error) {
	var h Host
	var err error
	if h.Uplink, err = link.Get(uplink); err != nil {
		return h, fmt.Errorf("uplink: %w", err)
	}
	b, err := link.Get(bridge)
	switch {
	case err == nil:
		h.Bridge = &b
	case !errors.Is(err, link.ErrNotFound):
		return h, err
	}
	if h.Addresses, err = link.Addresses(); err != nil {
		return h, err
	}
	h.Defaults, err = link.DefaultRoutes()
	return h, err
}

// ReadNode returns the node as it is now.
func ReadNode(s Settings) (Node, error) {
	h, err := observe(s.Uplink, s.Bridge)
	if err != nil {
		return Node{}, err
	}
	return nodeOf(h, s.NextHops, s.NotHost), nil
}

// syncBridge makes the bridge and its internal port follow the uplink, and
// reads the port again after changing it.
func (g *Gateway) syncBridge(ctx context.Context, h *Host) error {
	err := g.ovs.SyncBridge(ctx, ovs.Bridge{
		Name: g.s.Bridge, DatapathType: g.s.Datapath, HWAddr: h.Uplink.MAC.String(), MTU: h.Uplink.MTU,
		OtherConfig: map[string]string{"disable-in-band": "true"},
	})
	if err != nil {
		return err
	}
	if h.Bridge == nil {
		return fmt.Errorf("bridge %s: its device is not there yet: is ovs-vswitchd running?", g.s.Bridge)
	}
	if err := g.prepareBridge(); err != nil {
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
	if !slices.Equal(b.MAC, h.Uplink.MAC) || b.MTU != h.Uplink.MTU {
		return fmt.Errorf("bridge %s: address %s and MTU %d do not follow the uplink's %s and %d yet", g.s.Bridge, b.MAC, b.MTU, h.Uplink.MAC, h.Uplink.MTU)
	}
	return nil
}

// prepareBridge keeps the host's stack from talking on the internal port,
// then brings it up.
func (g *Gateway) prepareBridge() error {
	if g.s.Userspace && g.s.Encap.Addr().Is6() {
		if err := link.QuietIPv6(g.s.Bridge); err != nil {
			return err
		}
	} else if err := link.DisableIPv6(g.s.Bridge); err != nil {
		return err
	}
	if !g.s.Userspace {
		if err := link.WriteSysctl("net/ipv4/conf/"+g.s.Bridge+"/arp_ignore", "8"); err != nil {
			return err
		}
	}
	if err := link.SetUp(g.s.Bridge); err != nil {
		return err
	}
	return link.SyncAddresses(g.s.Bridge, bridgeAddresses(g.s))
}

// syncFlows writes the static flows and only then lets ovn-controller connect
// the bridge: without them OVN's packets would be lost, and without programs
// they would reach the host's stack.
func (g *Gateway) syncFlows(ctx context.Context, h Host, programs error) error {
	if h.Bridge == nil || programs != nil {
		return nil // reported already
	}
	if !g.vswitchd.Load() {
		return fmt.Errorf("bridge %s: no OpenFlow connection: is ovs-vswitchd running?", g.s.Bridge)
	}
	if g.flows.Swap(false) || time.Since(g.applied.flowsAt) > resync/2 {
		var encap netip.Addr
		if g.s.Userspace {
			encap = g.s.Encap.Addr()
		}
		changed, err := ovs.SyncFlows(ctx, g.s.OVSRunDir, g.s.Bridge, ovs.GatewayFlows(encap))
		if err != nil {
			g.flows.Store(true)
			return err
		}
		if changed && g.applied.complete {
			g.repaired("flows")
		}
		g.applied.flowsAt = time.Now()
	}
	return g.ovs.SyncBridgeMapping(ctx, Network, g.s.Bridge)
}
