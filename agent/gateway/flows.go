package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// syncFlows writes the bridge's flows and only then lets ovn-controller connect
// the bridge: without them OVN's packets would be lost, and without programs
// they would reach the host's stack.
func (g *Gateway) syncFlows(ctx context.Context, st state) error {
	if !g.vswitchd.Load() && !g.applied.moving {
		return fmt.Errorf("bridge %s: no OpenFlow connection: is ovs-vswitchd running?", g.s.Bridge)
	}
	change, err := g.planFlows(ctx, st)
	if err != nil {
		return err
	}
	if err := g.writeFlows(ctx, change); err != nil {
		g.flows.Store(true)
		return err
	}
	return g.ovs.SyncBridgeMapping(ctx, Network, g.s.mapping())
}

// writeFlows writes what has changed; what may be lost, and everything now and
// then, is compared with what the bridge has.
func (g *Gateway) writeFlows(ctx context.Context, change openflow.Change) error {
	w := &g.written
	w.RunDir, w.Bridge = g.s.OVSRunDir, g.s.Bridge
	if lost := g.flows.Swap(false); !lost && time.Since(g.applied.flowsAt) < resync/2 {
		_, err := w.Update(ctx, change.Write, change.Gone)
		return err
	}
	messages, err := w.All(ctx, g.planner.All())
	if err != nil {
		return err
	}
	if messages > 0 && g.applied.complete && change.Empty() {
		g.repaired("flows")
	}
	g.applied.flowsAt = time.Now()
	return nil
}

// planFlows plans those of the backend: the whole demultiplexer, or what stands
// beside the programs. What it returns must be written, or g.flows be set.
func (g *Gateway) planFlows(ctx context.Context, st state) (openflow.Change, error) {
	var ports openflow.Ports
	if g.s.Layout != Direct { // there flows name no port
		var err error
		if ports, err = g.ports(ctx); err != nil {
			return openflow.Change{}, err
		}
	}
	if g.s.Backend == OpenFlow {
		return g.planner.Flows(st.input(ports, g.serving.frontEnds(), g.applied.sockets, g.applied.protos)), nil
	}
	return g.planner.Static(openflow.StaticInput{
		Layout: staticLayouts[g.s.Layout], Ports: ports, VLAN: g.s.VLAN, EncapIP: st.config.EncapIP, Hairpin: st.hairpin(),
	}), nil
}

var staticLayouts = map[Layout]openflow.Layout{Direct: openflow.Direct, Bridged: openflow.Bridged, Dedicated: openflow.Dedicated}

// syncSteal keeps the host's stack from handling what OVS on the userspace
// datapath has read from the uplink: OVS has its copy before tc ingress.
func (g *Gateway) syncSteal(uplink int) error {
	if !g.s.Userspace() || g.s.Layout == Direct || link.ClsactAttached(uplink, stealFilter) {
		return nil
	}
	steal, err := bpf.NewSteal(clsactFuncs())
	if err != nil {
		return err
	}
	defer steal.Close() // the filter goes on
	return steal.Attach(uplink)
}

// stealFilter is the name of bpf.Steal's filter.
const stealFilter = "ovnebpf_steal"

// ports returns the numbers of the uplink's port and of the patch port to br-int.
// ovn-controller makes the latter once the bridge is mapped.
func (g *Gateway) ports(ctx context.Context) (openflow.Ports, error) {
	return bridgePorts(ctx, g.ovs, g.s.Bridge, g.s.Uplink)
}

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
