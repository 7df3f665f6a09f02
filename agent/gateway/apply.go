package gateway

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
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
	sockets   []link.Socket
	protos    []bpf.NSKey // last read
	socketsAt time.Time   // last scan
	flowsAt   time.Time   // last comparison
	moving    bool        // the uplink is about to become a port: vswitchd has just answered
	dropped   bool        // there are no programs of ours, as flows do their work
	complete  bool        // everything was right once
}

// apply brings everything in line with the host as it is now. What does not
// depend on a failed part is done all the same.
func (g *Gateway) apply(ctx context.Context) error {
	// What the host has meanwhile is the mover's, and so is the bridge.
	if err := Moving(g.s.RunDir); err != nil {
		return err
	}
	h, err := g.observe()
	if err != nil {
		return errors.Join(err, g.pass())
	}
	if g.s.bare() {
		return g.applyBare(ctx, h)
	}
	if g.s.NoEBPF != "" && g.s.Backend == EBPF {
		g.noteNode(nodeOf(h, g.s)) // pods are served all the same
		return fmt.Errorf("this node serves no North-South traffic: %s", g.s.NoEBPF)
	}
	if err := g.awaitServices(ctx); err != nil {
		return err
	}
	if err := reservePorts(g.s.RunDir, g.s.reserved()); err != nil {
		return err
	}
	// Also while running: an operator may bridge the NIC, and move the host's
	// addresses to a bridge that would be stripped of them here.
	if h, err = g.syncMembership(ctx, h); err != nil {
		return errors.Join(err, g.pass())
	}
	n := nodeOf(h, g.s)
	g.noteFormer(h)
	g.noteNode(n)
	if len(n.Addresses) == 0 {
		return errors.Join(fmt.Errorf("%s has no address", g.s.HostDevice()), g.pass())
	}
	var errUplink error
	if g.s.Layout == Direct { // a port of OVS has none
		errUplink = link.DisableLRO(g.s.Uplink)
	}
	errBridge := g.syncBridge(ctx, &h, n)
	settled := g.extras.settled
	err = errors.Join(errUplink, errBridge, g.syncBackend(ctx, h, n))
	if g.extras.settled && !settled && errBridge == nil {
		err = errors.Join(err, g.syncHairpin(n)) // the routes that had to wait
	}
	if err == nil {
		g.applied.complete = true
	}
	return err
}

// syncMembership makes the uplink a port of the bridge or not, as the layout
// wants, with the host's addresses where they belong, and returns the host as it is
// then. In layout dedicated there is nothing to move: syncBridge does it.
func (g *Gateway) syncMembership(ctx context.Context, h Host) (Host, error) {
	if err := shared(h, g.s); err != nil {
		return h, err
	}
	if g.s.Layout == Direct && moved(g.s) {
		if err := g.syncTracking(ctx, nodeOf(h, g.s.placed(Bridged))); err != nil {
			return h, err
		}
		if err := g.leave(ctx, h); err != nil {
			return h, err
		}
		return g.observe()
	}
	member, err := checkBridge(ctx, g.ovs, g.s.Wiring)
	// After a reboot OVSDB still has the uplink as a port, and the boot has
	// given it the addresses.
	if err != nil || g.s.Layout != Bridged || member && !misplaced(h, g.s) {
		return h, err
	}
	n := nodeOf(h, g.s.placed(Direct)) // where the addresses are now
	if err := g.syncTracking(ctx, n); err != nil {
		return h, err
	}
	if err := g.join(ctx, h, n); err != nil {
		return h, err
	}
	return g.observe()
}

// syncBackend makes whose a packet is known to what decides it: programs before
// the flows beside them, flows before the programs they replace go.
func (g *Gateway) syncBackend(ctx context.Context, h Host, n Node) error {
	if err := g.syncTracking(ctx, n); err != nil {
		return err
	}
	st := g.state(h, n)
	if err := g.syncSteal(h.Uplink.Index); err != nil {
		return err
	}
	if g.s.Backend == EBPF {
		if err := g.syncPrograms(ctx, st); err != nil || h.Bridge == nil {
			return err
		}
		return g.syncFlows(ctx, st)
	}
	g.syncHostProtos()
	if err := g.syncSockets(); err != nil || h.Bridge == nil {
		return err
	}
	if err := g.syncFlows(ctx, st); err != nil {
		return err
	}
	if err := g.dropPrograms(); err != nil {
		return err
	}
	g.openExtras()
	return g.writeServices()
}

// state is what is known now, with the Services planned for this node.
func (g *Gateway) state(h Host, n Node) state {
	f := g.factsNow()
	st := newState(h, n, g.s, f)
	st.flows = g.tracking.left
	// Until conntrack has been read, what an earlier agent knew still counts.
	st.config.Takeover = !g.tracking.known || len(st.flows) > 0
	g.serving.plan(g.serving.serviceNode(h, n, g.s, f))
	st.setAddrs(f, g.vips())
	g.noteRedirects()
	return st
}

// noteNode publishes a node that is not as it was.
func (g *Gateway) noteNode(n Node) {
	if reflect.DeepEqual(n, g.applied.node) {
		return
	}
	g.applied.node = n
	g.publish(n)
	for _, p := range n.stranded() {
		g.log.Warn("no next hop: no default route by the uplink and no --gateway-nexthop; pods reach only its own network",
			"uplink", g.s.Uplink, "address", p)
	}
}

// observe reads the host, of which the loop has made a node before.
func (g *Gateway) observe() (Host, error) {
	h, err := observe(g.s.Uplink, g.s.Bridge)
	h.InUse = addrsOf(g.applied.node.Addresses)
	return h, err
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
	return nodeOf(h, s), nil
}
