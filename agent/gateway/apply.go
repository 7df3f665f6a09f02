package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// apply reconciles all parts with the host's current state, in this order: routes of the host,
// reserved ports, the place of the uplink (transferUplink), the published Node, bridge and backend
// (applyLayout). A part that fails does not stop independent parts. If the host cannot be read or has
// no address, or the uplink cannot get to its place, the backend passes every packet to the host.
func (g *Gateway) apply(ctx context.Context) error {
	// During a move, the process that runs it owns the bridge and the host's addresses.
	if err := Moving(g.s.RunDir); err != nil {
		return err
	}

	h, err := g.view.observe()
	if err != nil {
		return errors.Join(err, g.backend.passToHost())
	}

	errRoutes := g.topology.routes.keepRoutes(neededDevices(h, g.s), &h, time.Now())
	if g.s.leavesUplinkAlone() {
		return errors.Join(errRoutes, g.applyWithoutGateway(ctx, h))
	}

	if g.s.NoEBPF != "" && g.s.Backend == EBPF {
		// The controller needs the node even so: pods get their network.
		g.view.setNode(g.view.deriveNode(h, g.s), g.log)

		return fmt.Errorf("this node serves no North-South traffic: %s", g.s.NoEBPF)
	}

	if err := g.services.checkReplaceable(ctx); err != nil {
		// The API server may be out of reach because the host has lost its address: report that.
		if n := g.view.deriveNode(h, g.s); len(n.Gone) > 0 {
			g.view.setNode(n, g.log)
		}

		return err
	}

	if err := reservePorts(g.s.RunDir, g.s.reserved()); err != nil {
		return err
	}

	// The layout can also need a move at run time: an operator may put the NIC into a bridge and
	// move the host's addresses there, and the code below would remove them.
	if h, err = g.transferUplink(ctx, h); err != nil {
		return errors.Join(err, g.backend.passToHost())
	}

	n := g.view.deriveNode(h, g.s)
	before, _ := g.view.Node()
	g.former.update(before, n, h)
	g.view.setNode(n, g.log)

	if len(n.Addresses) == 0 {
		return errors.Join(fmt.Errorf("%s has no address", g.s.HostDevice()), g.backend.passToHost())
	}

	err = errors.Join(errRoutes, g.applyLayout(ctx, h, n))
	g.wasInPlace = g.wasInPlace || err == nil

	return err
}

// applyLayout reconciles uplink, bridge and backend with the host.
func (g *Gateway) applyLayout(ctx context.Context, h Host, n Node) error {
	var errUplink error
	if g.s.Layout == verdict.Direct { // in other layouts, the uplink is a port of OVS
		errUplink = link.DisableLRO(g.s.Uplink)
	}

	servedBefore := g.services.hostServed.Load()
	errBridge := g.topology.syncBridge(ctx, &h, n, servedBefore)
	err := errors.Join(errUplink, errBridge, g.applyBackend(ctx, h, n))

	// The backend has written the first Services for the host's sockets, so the routes to Services
	// do not wait for the next round.
	if g.services.hostServed.Load() && !servedBefore && errBridge == nil {
		err = errors.Join(err, g.topology.syncHairpin(n, true))
	}

	return err
}

// applyBackend reconciles the backend with the host. The tracker comes first, because connections
// from before a takeover must be known before the backend decides anything.
func (g *Gateway) applyBackend(ctx context.Context, h Host, n Node) error {
	if err := g.tracker.sync(ctx, n); err != nil {
		return err
	}

	if err := checkEthernet(h.Uplink); err != nil {
		return err
	}

	st := g.plan(h, n)
	if err := g.topology.syncSteal(h.Uplink.Index); err != nil {
		return err
	}

	return g.backend.sync(ctx, st)
}

// checkEthernet returns an error if the device has no Ethernet address, like a tun device.
func checkEthernet(d link.Link) error {
	if len(d.MAC) != len(verdict.MAC{}) {
		return fmt.Errorf("uplink %s: %q is not an Ethernet address", d.Name, d.MAC)
	}

	return nil
}

// applyWithoutGateway is like apply, for a node on which the agent uses neither bridge nor backend
// (see Settings.leavesUplinkAlone). It removes those of an earlier agent.
func (g *Gateway) applyWithoutGateway(ctx context.Context, h Host) error {
	if err := g.topology.ovs.SyncBridgeMapping(ctx, Network, ""); err != nil {
		return err
	}

	located, mustReturn, err := g.topology.finishMove(ctx)
	if err == nil && mustReturn {
		err = g.leaveBridge(ctx, h)
	}

	if err != nil {
		return err
	}

	if h, err = g.view.observe(); err != nil { // the addresses may have moved
		return err
	}

	n := g.view.deriveNode(h, located)
	g.view.setNode(n, g.log)

	if len(n.Addresses) == 0 {
		return fmt.Errorf("%s has no address", located.HostDevice())
	}

	if err := g.backend.detach(); err != nil {
		return err
	}

	if located.Layout != verdict.Bridged && h.Bridge != nil {
		if err := g.topology.removeBridge(ctx); err != nil {
			return err
		}
	}

	if err := releasePorts(g.s.RunDir); err != nil {
		return err
	}

	g.services.plan(h, n, g.inputs.read())
	g.services.openHost(socketsOnly)

	return g.services.write(nil)
}

// transferUplink puts the uplink into the bridge or takes it out, as the layout requires, and moves
// the host's addresses with it. It returns the host as read afterwards.
func (g *Gateway) transferUplink(ctx context.Context, h Host) (Host, error) {
	required, err := g.topology.requiredTransfer(ctx, h)
	if err != nil || required == noTransfer {
		return h, err
	}

	// The addresses are still where the old layout has them.
	oldLayout := verdict.Direct
	if required == leaveTransfer {
		oldLayout = verdict.Bridged
	}

	n := nodeOf(h, g.s.withAddressesOf(oldLayout))
	if err := g.tracker.sync(ctx, n); err != nil {
		return h, err
	}

	if required == leaveTransfer {
		err = g.leaveBridge(ctx, h)
	} else {
		prepare := func() error { return g.backend.prepare(programConfig(h, n, g.s, facts{})) }
		err = g.topology.joinBridge(ctx, h, prepare, g.syncBridgedBackend)
	}

	if err != nil {
		return h, err
	}

	return g.view.observe()
}

// leaveBridge takes the uplink out of the bridge.
func (g *Gateway) leaveBridge(ctx context.Context, h Host) error {
	st := g.plan(h, nodeOf(h, g.s.withAddressesOf(verdict.Bridged))) // they are still on the bridge
	if err := g.backend.prepare(st.config); err != nil {
		return err
	}

	return g.topology.leaveBridge(ctx, func() error { return g.backend.syncHooks(ctx, st) })
}

// syncBridgedBackend runs right after the uplink became a bridge port. It writes the flows first,
// because they carry the host's traffic with and without programs. Then it syncs the programs.
func (g *Gateway) syncBridgedBackend(ctx context.Context) error {
	h, err := g.view.observe()
	if err != nil {
		return err
	}

	st := g.plan(h, nodeOf(h, g.s))

	flows := func() error { return g.backend.syncFlows(ctx, st) }

	err = errors.Join(g.topology.syncSteal(h.Uplink.Index), g.topology.flows.retrySync(ctx, flows))
	if err != nil {
		return err
	}

	return g.backend.syncHooks(ctx, st)
}

// plan plans the Services for the node and returns the desired state.
func (g *Gateway) plan(h Host, n Node) state {
	f := g.inputs.read()
	f.vips = g.services.plan(h, n, f)
	f.outsideRange, f.notTracked = g.tracker.outsideRange, !g.tracker.dumpSucceeded
	f.wasInPlace = g.wasInPlace

	return newState(h, n, g.s, f)
}

// observe reads the host. View.observe adds its ephemeral ports and its sockets.
func observe(w Wiring, known knownAddresses) (Host, error) {
	h := Host{Known: known}

	var err error
	if h.Uplink, err = link.Get(w.Uplink); err != nil {
		return h, fmt.Errorf("uplink: %w", err)
	}

	b, err := link.Get(w.Bridge)
	switch {
	case err == nil:
		h.Bridge = &b
	case !errors.Is(err, link.ErrNotFound):
		return h, err
	}

	if h.Addresses, err = link.Addresses(); err != nil {
		return h, err
	}

	if h.Defaults, err = link.DefaultRoutes(); err != nil {
		return h, err
	}

	h.Hops, err = readHops(h, w)

	return h, err
}

// readHops returns the kernel's routes from the node's addresses to the networks outside. Either
// device may have the addresses: a move of the uplink takes them along.
func readHops(h Host, w Wiring) ([]link.Hop, error) {
	if w.Layout == verdict.Dedicated {
		return nil, nil // its next hops are configured
	}

	devices := []string{w.Uplink}
	if h.Bridge != nil && w.Bridge != w.Uplink {
		devices = append(devices, w.Bridge)
	}

	var out []link.Hop

	for _, device := range devices {
		addresses := slices.DeleteFunc(slices.Clone(h.Addresses),
			func(a link.Address) bool { return a.Device != device || a.LinkLocal || a.Duplicate })
		for _, is4 := range []bool{true, false} {
			source, found := preferred(addresses, h.Known, is4)
			if !found {
				continue
			}

			routes, err := link.Hops(device, source.Addr())
			if err != nil && !errors.Is(err, link.ErrNotFound) {
				return nil, err
			}

			out = append(out, routes...)
		}
	}

	return out, nil
}
