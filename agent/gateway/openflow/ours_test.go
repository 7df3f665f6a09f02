package openflow_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Only connections of the node's addresses, with ports, are taken over, and only on a node that was
// taken over.
func TestTakeoverFlows(t *testing.T) {
	flows := func(takeover bool, keys ...verdict.FlowKey) []string {
		n := plainNode(1)
		in := (&rig{ports: openflow.Ports{Uplink: 1, Patch: 2}}).input(n)
		config, tables := *in.Config, *in.Tables

		config.Takeover, tables.Flows = takeover, map[verdict.FlowKey]time.Duration{}
		for _, k := range keys {
			tables.Flows[k] = time.Minute
		}

		in.Config, in.Tables = &config, &tables

		return openflow.Flows(in)
	}
	node := plainNode(1).Config.Node4
	key := func(proto uint8, local netip.Addr) verdict.FlowKey {
		return verdict.FlowKey{Proto: proto, Remote: netip.MustParseAddrPort("198.51.100.1:443"), Local: netip.AddrPortFrom(local, 40000)}
	}

	other := netip.MustParseAddr("203.0.113.7")
	for _, tt := range []struct {
		name     string
		takeover bool
		key      verdict.FlowKey
		flows    int
	}{
		{"tcp", true, key(6, node), 1},
		{"sctp", true, key(132, node), 1},
		{"not taken over", false, key(6, node), 0},
		{"another address", true, key(6, other), 0},
		{"no ports", true, key(1, node), 0},
		{"no ports, another address", true, key(1, other), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			without, with := flows(tt.takeover), flows(tt.takeover, tt.key)

			added := slices.DeleteFunc(with, func(f string) bool { return slices.Contains(without, f) })
			if len(added) != tt.flows {
				t.Errorf("flows %q for %v, want %d", added, tt.key, tt.flows)
			}
		})
	}
}

// A socket on the wildcard address receives packets to the node's addresses of its family; the IPv6
// wildcard receives both families.
func TestWildcardSockets(t *testing.T) {
	in := (&rig{ports: openflow.Ports{Uplink: 1, Patch: 2}}).input(plainNode(1))

	without := openflow.Flows(in)
	for local, flows := range map[string]int{ // three flows per address
		"0.0.0.0:50000": 3, "[::]:50000": 6, "203.0.113.7:50000": 0, "0.0.0.0:40000": 0,
		netip.AddrPortFrom(in.Config.Node4, 50000).String(): 3, netip.AddrPortFrom(in.Config.Node6, 50000).String(): 3,
	} {
		in.Sockets = []verdict.Socket{{Proto: 6, Local: netip.MustParseAddrPort(local)}}

		added := slices.DeleteFunc(openflow.Flows(in), func(f string) bool { return slices.Contains(without, f) })
		if len(added) != flows {
			t.Errorf("%s: flows %q, want %d", local, added, flows)
		}
	}
}
