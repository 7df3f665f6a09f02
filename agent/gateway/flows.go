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

// flowTable keeps the bridge's flows up to date, those of either backend. The eBPF backend has a
// few flows, which pass packets to and from its programs. With the OpenFlow backend, flows do
// everything. Only the gateway's loop calls its methods, except run.
type flowTable struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder
	wake   loop.Signal // triggers the gateway's loop

	connected   atomic.Bool // the OpenFlow connection of run is up
	maybeLost   atomic.Bool // the bridge's flows may differ from those written
	justJoined  bool        // the uplink became a port a moment ago: sync does not wait for connected
	planner     openflow.Planner
	bridgeFlows ovs.FlowSync
	comparedAt  time.Time // last comparison of all flows with those on the bridge
}

func newFlowTable(p parts, o *ovs.Client) *flowTable {
	t := &flowTable{s: p.s, ovs: o, log: p.log, record: p.record, wake: p.wake}
	t.bridgeFlows = ovs.FlowSync{RunDir: p.s.OVSRunDir, Bridge: p.s.Bridge}

	if TakenOver(p.s.RunDir) { // the agent's first flows replace those of ovn-kubernetes
		t.bridgeFlows.Evict = ovs.PredecessorCookie
	}

	return t
}

// run watches the OpenFlow connection until ctx ends. A lost connection may mean that ovs-vswitchd
// has ended or that the bridge was deleted, and flows survive neither.
func (t *flowTable) run(ctx context.Context) error {
	connected := func() {
		t.connected.Store(true)
		t.invalidate()
		t.wake.Trigger()
	}
	disconnected := func() {
		t.connected.Store(false)
		t.invalidate() // at once: retrySync writes before the connection is up again
		t.log.Warn("OpenFlow connection lost, writing flows again once it is back", "bridge", t.s.Bridge)
		t.wake.Trigger()
	}

	return ovs.WatchBridge(ctx, t.s.OVSRunDir, t.s.Bridge, connected, disconnected)
}

// invalidate makes the next sync compare all flows with those on the bridge.
func (t *flowTable) invalidate() { t.maybeLost.Store(true) }

// sync writes the planned flows to the bridge and only then lets ovn-controller connect it to OVN:
// without flows, the bridge would lose OVN's packets or flood them.
func (t *flowTable) sync(
	ctx context.Context,
	st state,
	plan func(state, openflow.Ports) openflow.Change,
) error {
	if !t.connected.Load() && !t.justJoined {
		return fmt.Errorf("bridge %s: no OpenFlow connection: is ovs-vswitchd running?", t.s.Bridge)
	}

	var ports openflow.Ports

	if t.s.Layout != verdict.Direct { // in layout direct, flows name no port
		var err error
		if ports, err = bridgePorts(ctx, t.ovs, t.s.Bridge, t.s.Uplink); err != nil {
			return err
		}
	}

	if err := t.write(ctx, plan(st, ports), st.wasInPlace); err != nil {
		t.invalidate()
		return err
	}

	return t.ovs.SyncBridgeMapping(ctx, Network, t.s.mappedBridge())
}

// write writes the changed flows. It compares all flows with those on the bridge after they may
// have been lost, and otherwise at most twice per resync.
func (t *flowTable) write(ctx context.Context, change openflow.Change, wasInPlace bool) error {
	if lost := t.maybeLost.Swap(false); !lost && time.Since(t.comparedAt) < resync/2 {
		_, err := t.bridgeFlows.Update(ctx, change.Write, change.Gone)
		return err
	}

	messages, err := t.bridgeFlows.All(ctx, t.planner.All())
	if err != nil {
		return err
	}

	// The flows have changed although the plan has not: another process did it, or ovs-vswitchd
	// restarted.
	if messages > 0 && change.Empty() && wasInPlace {
		t.record.countRepair("flows")
	}

	t.comparedAt = time.Now()

	return nil
}

// writeTemporary writes these flows instead of the planned ones, until the next sync.
func (t *flowTable) writeTemporary(ctx context.Context, flows []string) error {
	t.invalidate()
	_, err := t.bridgeFlows.All(ctx, flows)

	return err
}

// retrySync retries sync for half a second after the uplink became a port, while ovs-vswitchd may
// still be busy with that. sync then does not wait until run has connected, because the host's
// traffic depends on the flows.
func (t *flowTable) retrySync(ctx context.Context, sync func() error) error {
	t.justJoined = true
	defer func() { t.justJoined = false }()

	const tries, pause = 5, 100 * time.Millisecond

	var err error
	for range tries {
		if err = sync(); err == nil {
			return nil
		}

		if !loop.Pause(ctx, pause) {
			return err
		}
	}

	return err
}

// planStatic plans the flows of the eBPF backend.
func (t *flowTable) planStatic(st state, ports openflow.Ports) openflow.Change {
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
	return patches[ownPatchPort(slices.Sorted(maps.Keys(patches)), bridge)], err // 0 without a name
}

// ownPatchPort selects, from sorted names, the patch port that ovn-controller created for the
// agent's localnet port. It returns "" if there is none. The name starts with the bridge's name.
// For further networks, ovn-kubernetes puts the network's name into the port's name as well, so the
// shortest name is the agent's.
func ownPatchPort(names []string, bridge string) string {
	shortest := ""
	for _, name := range names {
		if strings.HasPrefix(name, "patch-"+bridge+"_") && (shortest == "" || len(name) < len(shortest)) {
			shortest = name
		}
	}

	return shortest
}
