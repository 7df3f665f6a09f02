package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// flowTable keeps the bridge's flows. Its methods are called by the gateway's loop, but for run
// and connected.
type flowTable struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder
	wake   loop.Signal // of the gateway's loop

	up   atomic.Bool // the OpenFlow connection
	lost atomic.Bool // the bridge may have other flows than those written

	planner    openflow.Planner
	written    ovs.FlowSync
	comparedAt time.Time
	moving     bool // the uplink has just become a port: ovs-vswitchd has answered
}

func newFlowTable(p parts, o *ovs.Client) *flowTable {
	t := &flowTable{s: p.s, ovs: o, log: p.log, record: p.record, wake: p.wake}
	t.written.RunDir, t.written.Bridge = p.s.OVSRunDir, p.s.Bridge
	if Inherited(p.s.RunDir) {
		t.written.Evict = ovs.PredecessorCookie
	}
	return t
}

// run watches the OpenFlow connection until ctx ends. Flows do not outlive ovs-vswitchd.
func (t *flowTable) run(ctx context.Context) error {
	return ovs.WatchBridge(ctx, t.s.OVSRunDir, t.s.Bridge, func() {
		t.up.Store(true)
		t.lost.Store(true)
		t.wake.Trigger()
	}, func() {
		t.up.Store(false)
		t.log.Warn("OpenFlow connection lost, flows will be written again", "bridge", t.s.Bridge)
		t.wake.Trigger()
	})
}

// connected reports whether there is an OpenFlow connection.
func (t *flowTable) connected() bool { return t.up.Load() }

// invalidate has the next sync compare all flows with those of the bridge.
func (t *flowTable) invalidate() { t.lost.Store(true) }

// sync writes the bridge's flows, as plan plans them, and only then lets ovn-controller connect
// the bridge: without flows OVN's packets would be lost, and without programs they would reach the
// host's stack.
func (t *flowTable) sync(ctx context.Context, st state, plan func(state, openflow.Ports) openflow.Change) error {
	if !t.up.Load() && !t.moving {
		return fmt.Errorf("bridge %s: no OpenFlow connection: is ovs-vswitchd running?", t.s.Bridge)
	}
	var ports openflow.Ports
	if t.s.Layout != Direct { // there flows name no port
		var err error
		if ports, err = bridgePorts(ctx, t.ovs, t.s.Bridge, t.s.Uplink); err != nil {
			return err
		}
	}
	if err := t.write(ctx, plan(st, ports), st.repair); err != nil {
		t.lost.Store(true)
		return err
	}
	return t.ovs.SyncBridgeMapping(ctx, Network, t.s.mapping())
}

// write writes what has changed. All flows are compared with those of the bridge after they may
// have been lost, and every resync/2.
func (t *flowTable) write(ctx context.Context, change openflow.Change, repair bool) error {
	if lost := t.lost.Swap(false); !lost && time.Since(t.comparedAt) < resync/2 {
		_, err := t.written.Update(ctx, change.Write, change.Gone)
		return err
	}
	messages, err := t.written.All(ctx, t.planner.All())
	if err != nil {
		return err
	}
	if messages > 0 && repair && change.Empty() {
		t.record.repaired("flows")
	}
	t.comparedAt = time.Now()
	return nil
}

// insist syncs while ovs-vswitchd may still be busy with the uplink, which has just become a port.
func (t *flowTable) insist(ctx context.Context, sync func() error) error {
	t.moving = true
	defer func() { t.moving = false }()
	var err error
	for range 5 {
		if err = sync(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return err
}

// static plans the flows beside programs.
func (t *flowTable) static(st state, ports openflow.Ports) openflow.Change {
	return t.planner.Static(openflow.StaticInput{
		Layout: staticLayouts[t.s.Layout], Ports: ports, VLAN: t.s.VLAN, EncapIP: st.config.EncapIP, Hairpin: st.hairpin(),
	})
}

var staticLayouts = map[Layout]openflow.Layout{Direct: openflow.Direct, Bridged: openflow.Bridged, Dedicated: openflow.Dedicated}

// bridgePorts returns the numbers of the uplink's port and of the patch port to br-int, which
// ovn-controller makes once the bridge is mapped.
func bridgePorts(ctx context.Context, o *ovs.Client, bridge, uplink string) (openflow.Ports, error) {
	all, err := o.OFPorts(ctx, bridge)
	if err != nil {
		return openflow.Ports{}, err
	}
	patches, err := o.PatchPorts(ctx, bridge)
	if err != nil {
		return openflow.Ports{}, err
	}
	if all[uplink] == 0 {
		return openflow.Ports{}, fmt.Errorf("bridge %s: ovs-vswitchd has not opened the port %s", bridge, uplink)
	}
	return openflow.Ports{Uplink: all[uplink], Patch: patches[patchPort(slices.Sorted(maps.Keys(patches)), bridge)]}, nil
}

// patchPort returns the patch port, of those given, that ovn-controller made for
// our localnet port, whose name begins with the bridge's; "" for none. Where
// ovn-kubernetes has further networks theirs have the network's name as well.
func patchPort(names []string, bridge string) string {
	best := ""
	for _, n := range names {
		if strings.HasPrefix(n, "patch-"+bridge+"_") && (best == "" || len(n) < len(best)) {
			best = n
		}
	}
	return best
}
