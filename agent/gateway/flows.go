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
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// flowTable keeps the bridge's flows up to date. Only the gateway's loop calls its methods, except run.
type flowTable struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder
	wake   loop.Signal // triggers the gateway's loop

	up   atomic.Bool // whether the OpenFlow connection is up
	lost atomic.Bool // the bridge's flows may differ from those written

	planner    openflow.Planner
	written    ovs.FlowSync
	comparedAt time.Time
	moving     bool // the uplink just became a port, and ovs-vswitchd has answered
}

func newFlowTable(p parts, o *ovs.Client) *flowTable {
	t := &flowTable{s: p.s, ovs: o, log: p.log, record: p.record, wake: p.wake}
	t.written.RunDir, t.written.Bridge = p.s.OVSRunDir, p.s.Bridge

	if Inherited(p.s.RunDir) {
		t.written.Evict = ovs.PredecessorCookie
	}

	return t
}

// run watches the OpenFlow connection until ctx ends. Flows do not survive ovs-vswitchd.
func (t *flowTable) run(ctx context.Context) error {
	return ovs.WatchBridge(ctx, t.s.OVSRunDir, t.s.Bridge, func() {
		t.up.Store(true)
		t.lost.Store(true)
		t.wake.Trigger()
	}, func() {
		t.up.Store(false)
		t.lost.Store(true) // a move of the uplink writes without a connection
		t.log.Warn("OpenFlow connection lost, writing flows again", "bridge", t.s.Bridge)
		t.wake.Trigger()
	})
}

// invalidate makes the next sync compare all flows with those on the bridge.
func (t *flowTable) invalidate() { t.lost.Store(true) }

// sync writes the planned flows to the bridge and only then lets ovn-controller connect it. Without
// flows OVN's packets would be lost. Without programs they would reach the host's stack.
func (t *flowTable) sync(
	ctx context.Context,
	st state,
	plan func(state, openflow.Ports) openflow.Change,
) error {
	if !t.up.Load() && !t.moving {
		return fmt.Errorf("bridge %s: no OpenFlow connection: is ovs-vswitchd running?", t.s.Bridge)
	}

	var ports openflow.Ports

	if t.s.Layout != verdict.Direct { // in layout direct, flows name no port
		var err error
		if ports, err = bridgePorts(ctx, t.ovs, t.s.Bridge, t.s.Uplink); err != nil {
			return err
		}
	}

	if err := t.write(ctx, plan(st, ports), st.repair); err != nil {
		t.lost.Store(true)
		return err
	}

	return t.ovs.SyncBridgeMapping(ctx, Network, t.s.mappedBridge())
}

// write writes the changed flows. It compares all flows with those on the bridge after they may
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

// replace writes these flows instead of the planned ones, until the next sync.
func (t *flowTable) replace(ctx context.Context, flows []string) error {
	t.lost.Store(true)
	_, err := t.written.All(ctx, flows)

	return err
}

// retrySync retries sync while ovs-vswitchd may still be busy with the uplink, which just became a
// port.
func (t *flowTable) retrySync(ctx context.Context, sync func() error) error {
	t.moving = true
	defer func() { t.moving = false }()

	var err error
	for range 5 {
		if err = sync(); err == nil {
			return nil
		}

		if !loop.Pause(ctx, 100*time.Millisecond) {
			return err
		}
	}

	return err
}

// static plans the flows that accompany programs.
func (t *flowTable) static(st state, ports openflow.Ports) openflow.Change {
	return t.planner.Static(openflow.StaticInput{
		Layout:  t.s.Layout,
		Ports:   ports,
		VLAN:    t.s.VLAN,
		EncapIP: st.config.EncapIP,
		Hairpin: st.hairpin(),
	})
}

// bridgePorts returns the numbers of the uplink's port and of the patch port to br-int.
// ovn-controller creates the patch port once the bridge is mapped.
func bridgePorts(ctx context.Context, o *ovs.Client, bridge, uplink string) (openflow.Ports, error) {
	all, err := o.OFPorts(ctx, bridge)
	if err != nil {
		return openflow.Ports{}, err
	}

	patch, err := PatchPort(ctx, o, bridge)
	if err != nil {
		return openflow.Ports{}, err
	}

	if all[uplink] == 0 {
		return openflow.Ports{}, fmt.Errorf("bridge %s: ovs-vswitchd has not opened the port %s",
			bridge, uplink)
	}

	return openflow.Ports{Uplink: all[uplink], Patch: patch}, nil
}

// PatchPort returns the number of the gateway bridge's patch port to OVN, or 0 if there is none.
func PatchPort(ctx context.Context, o *ovs.Client, bridge string) (uint32, error) {
	patches, err := o.PatchPorts(ctx, bridge)
	return patches[patchPort(slices.Sorted(maps.Keys(patches)), bridge)], err
}

// patchPort selects, from names, the patch port that ovn-controller created for the agent's
// localnet port. It returns "" if there is none. The name starts with the bridge's name. For
// further networks, ovn-kubernetes puts the network's name into the port's name as well.
func patchPort(names []string, bridge string) string {
	best := ""
	for _, n := range names {
		if strings.HasPrefix(n, "patch-"+bridge+"_") && (best == "" || len(n) < len(best)) {
			best = n
		}
	}

	return best
}
