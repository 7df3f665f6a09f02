package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// helper is the gateway of ovn-kubernetes' first releases: breth0 has the uplink and the node's
// addresses, and five flows in conntrack zone 64000 separate replies to pods from other traffic.
// The flows are those of ovn-k8s-gateway-helper at its start (bin/ovn-k8s-gateway-helper,
// add_conntrack_rules, at ovn-kubernetes commit dad2121b7f48): IPv4 only, no mark, host packets not
// committed, and all but replies to pods go to the bridge's NORMAL.
type helper struct{ ovs ovs }

// Cookies by which watch counts the packets of each flow. The original has none.
const (
	fromPods = iota + 0x10
	fromUplink
	established
	related
	others
	toServices
)

func (*helper) traits() traits {
	return traits{
		name: bench.Helper, layout: "bridged",
		tests: gatewayTests(),
		ipv6:  hostTests6(),
	}
}

func (h *helper) setup(ctx context.Context) error {
	if err := h.ovs.bridgedHost(ctx, "", ""); err != nil {
		return err
	}

	if err := h.ovs.flows(ctx, "breth0", fmt.Sprintf(`
		cookie=%d,priority=100,in_port=2,ip,actions=ct(commit,zone=64000),output:1
		cookie=%d,priority=50,in_port=1,ip,actions=ct(zone=64000,table=1)
		cookie=%d,table=1,priority=100,ct_state=+trk+est,actions=output:2
		cookie=%d,table=1,priority=100,ct_state=+trk+rel,actions=output:2
		cookie=%d,table=1,priority=0,actions=NORMAL
	`, fromPods, fromUplink, established, related, others)); err != nil {
		return err
	}

	ports, err := h.ovs.ports(ctx)
	if err != nil {
		return err
	}

	if !slices.Contains(ports, "eth0") {
		return fmt.Errorf("check: the uplink is not a port of breth0: %v", ports)
	}

	return nil
}

// watch checks that the test's packets used their flows.
func (h *helper) watch(ctx context.Context, t test) (func(int) error, error) {
	if t.nodePort() {
		if err := h.servicePorts(ctx); err != nil {
			return nil, err
		}
	}

	return h.ovs.watchFlows(ctx, t, func(ops int, packets map[uint64]int) error {
		want := map[uint64]int{fromUplink: t.packets(ops), others: t.packets(ops)}
		if t.northSouth() {
			want = map[uint64]int{fromUplink: t.packets(ops), established: t.packets(ops), fromPods: t.packets(ops)}
		}

		if t.nodePort() {
			want = map[uint64]int{toServices: t.packets(ops), fromPods: t.packets(ops)}
			if t.name == bench.NodePortRemote {
				want[fromUplink], want[others] = t.packets(ops), t.packets(ops)
			}
		}

		if t.family == bench.IPv6 {
			want = nil // the flows are for IPv4
		}

		for _, cookie := range []uint64{fromPods, fromUplink, established, related, others, toServices} {
			what := fmt.Sprintf("packets by breth0's flow %#x", cookie)
			if err := t.expect(what, packets[cookie], want[cookie]); err != nil {
				return err
			}
		}

		return nil
	})
}

// servicePorts adds the helper's NodePort flow, which sends the packets to OVN before
// conntrack.
func (h *helper) servicePorts(ctx context.Context) error {
	return h.ovs.flows(ctx, "breth0", fmt.Sprintf(`
		cookie=%[1]d,priority=100,in_port=1,tcp,tp_dst=%[2]d,actions=output:2
		cookie=%[1]d,priority=100,in_port=1,tcp,tp_dst=%[3]d,actions=output:2
	`, toServices, localNodePort, remoteNodePort))
}
