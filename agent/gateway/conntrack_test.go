package gateway

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var (
	takeoverNode  = []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:172:30::11")}
	takeoverPorts = cluster.PortRange{First: 49152, Last: 65535}
	sameAddrPort  = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
)

func newTestTracker(s Settings) *tracker {
	log := slog.New(slog.DiscardHandler)
	return &tracker{s: s, log: log, record: newRecorder(log), wake: loop.NewSignal(), connected: func() bool { return false }}
}

func tracked(zone uint16, mark uint32, src, dst, replySrc, replyDst string) ovs.TrackedConnection {
	ap := netip.MustParseAddrPort
	return ovs.TrackedConnection{Proto: 6, Zone: zone, Mark: mark, Original: ovs.Tuple{Src: ap(src), Dst: ap(dst)}, Reply: ovs.Tuple{Src: ap(replySrc), Dst: ap(replyDst)}}
}

// A connection of a host socket does not belong to a pod, whatever another gateway has translated.
func TestHostSocketsOwnTheirConnections(t *testing.T) {
	ap := netip.MustParseAddrPort

	socket := func(proto uint8, local, remote string) link.Socket {
		s := link.Socket{Proto: proto, Local: ap(local)}
		if remote != "" {
			s.Remote = ap(remote)
		}

		return s
	}
	for _, tt := range []struct {
		name   string
		socket link.Socket
		owned  bool
	}{
		{"any address", socket(17, "0.0.0.0:4500", ""), true},
		{"any address of both versions", socket(17, "[::]:4500", ""), true},
		{"the node's address", socket(17, "172.30.0.11:4500", ""), true},
		{"connected to the peer", socket(17, "172.30.0.11:4500", "198.51.100.1:4500"), true},
		{"connected to another", socket(17, "172.30.0.11:4500", "198.51.100.2:4500"), false},
		{"connected to another port", socket(17, "172.30.0.11:4500", "198.51.100.1:4501"), false},
		{"another address", socket(17, "172.30.0.12:4500", ""), false},
		{"another port", socket(17, "0.0.0.0:4501", ""), false},
		{"another protocol", socket(6, "0.0.0.0:4500", "198.51.100.1:4500"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flows := []verdict.FlowKey{{Proto: 17, Remote: ap("198.51.100.1:4500"), Local: ap("172.30.0.11:4500")}}
			if left := withoutHostFlows(flows, []link.Socket{tt.socket}); (len(left) == 0) != tt.owned {
				t.Errorf("left %v, of the host: want %t", left, tt.owned)
			}
		})
	}

	tcp := []verdict.FlowKey{{Proto: 6, Remote: ap("198.51.100.1:443"), Local: ap("172.30.0.11:22")}}
	if left := withoutHostFlows(tcp, []link.Socket{{Proto: 6, Local: ap("0.0.0.0:22"), Listening: true}}); len(left) != 1 {
		t.Error("a listener owns a connection that it has not accepted")
	}

	if left := withoutHostFlows(tcp, []link.Socket{{Proto: 6, Local: ap("172.30.0.11:22"), Remote: ap("198.51.100.1:443")}}); len(left) != 0 {
		t.Error("a connection of the host's is a pod's")
	}
}

func TestConnectionsOutside(t *testing.T) {
	const pod, remote, node = "10.244.0.3:22", "198.51.100.1:443", "172.30.0.11:22"

	key := func(remote, local string) []verdict.FlowKey {
		return []verdict.FlowKey{{Proto: 6, Remote: netip.MustParseAddrPort(remote), Local: netip.MustParseAddrPort(local)}}
	}
	for _, tt := range []struct {
		name string
		in   ovs.TrackedConnection
		want []verdict.FlowKey
	}{
		{"a router's SNAT", tracked(7, 0, pod, remote, remote, node), key(remote, node)},
		{"a router's SNAT, IPv6", tracked(7, 0, "[fd00:10::3]:22", "[2001:db8::1]:443", "[2001:db8::1]:443", "[fd00:172:30::11]:22"), key("[2001:db8::1]:443", "[fd00:172:30::11]:22")},
		{"inside the range", tracked(7, 0, pod, remote, remote, "172.30.0.11:50000"), nil},
		{"helper's zone", tracked(64000, 0, node, remote, remote, node), key(remote, node)},
		{"ovn-kubernetes' zone, a pod's", tracked(64000, 1, node, remote, remote, node), key(remote, node)},
		{"ovn-kubernetes' zone, the host's", tracked(64000, 2, node, remote, remote, node), nil},
		{"the host's own tracking", tracked(0, 0, node, remote, remote, node), nil},
		{"the hairpin", tracked(64001, 0, pod, remote, remote, node), nil},
		{"only passes", tracked(7, 0, node, remote, remote, node), nil},
		{"another address", tracked(7, 0, pod, remote, remote, "172.30.0.99:22"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := connectionsOutside(takeoverPorts, []ovs.TrackedConnection{tt.in, tt.in}, takeoverNode)
			if diff := cmp.Diff(tt.want, got, sameAddrPort); diff != "" {
				t.Errorf("flows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCountPortUse(t *testing.T) {
	in := []ovs.TrackedConnection{
		tracked(7, 0, "10.244.0.3:1", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:50000"),
		tracked(8, 0, "10.244.0.3:1", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:50000"), // in the next zone again
		tracked(7, 0, "10.244.0.3:2", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:50001"),
		tracked(7, 0, "10.244.0.3:1", "198.51.100.2:443", "198.51.100.2:443", "172.30.0.11:50000"),
		tracked(7, 0, "10.244.0.3:1", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:22"), // taken over
		tracked(0, 0, "172.30.0.11:50009", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:50009"),
	}

	want := []PortUse{
		{6, netip.MustParseAddrPort("198.51.100.1:443"), 2}, {6, netip.MustParseAddrPort("198.51.100.2:443"), 1},
	}
	if diff := cmp.Diff(want, countPortUse(in, takeoverNode, takeoverPorts), sameAddrPort); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
}

// TestContainsFlow uses as many connections as the programs' table holds. A linear search per
// connection, in every round of the loop, would take hours.
func TestContainsFlow(t *testing.T) {
	const many = 1 << 18

	var in []ovs.TrackedConnection

	for i := range many {
		remote := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), uint16(1+i>>16)).String()
		in = append(in, tracked(7, 0, "10.244.0.3:1", remote, remote, "172.30.0.11:22"))
	}

	list := connectionsOutside(takeoverPorts, in, takeoverNode)
	if len(list) != many {
		t.Fatalf("%d connections, want %d", len(list), many)
	}

	for _, k := range list {
		if !containsFlow(list, k) {
			t.Fatalf("%+v is missing", k)
		}
	}

	if gone := list[many/2]; containsFlow(slices.Delete(slices.Clone(list), many/2, many/2+1), gone) {
		t.Errorf("%+v is still there", gone)
	}
}

func TestDumps(t *testing.T) {
	for _, tt := range []struct {
		name  string
		none  bool
		since time.Duration
		want  bool
	}{
		{"connections of before are left", false, resync, true},
		{"none is left", true, resync, false},
		{"none is left, five minutes later", true, 5 * time.Minute, true},
	} {
		if got := isDumpDue(tt.none, tt.since); got != tt.want {
			t.Errorf("%s: a dump is due: %t, want %t", tt.name, got, tt.want)
		}
	}

	if err := tooLarge(200_000); err != nil {
		t.Error(err)
	}

	if err := tooLarge(200_001); err == nil || err.Error() != "conntrack too large: 200001" {
		t.Errorf("200001 connections: %v", err)
	}

	tr := newTestTracker(Settings{Wiring: Wiring{Datapath: ovs.DatapathSystem}})
	if _, err := tr.count(t.Context()); err != nil {
		t.Errorf("the kernel's count: %v", err)
	}
}

// TestDumpsBecomeRare checks the interval of dumps once no connection from before a takeover is
// left.
func TestDumpsBecomeRare(t *testing.T) {
	tr := newTestTracker(Settings{Cluster: Cluster{SNATPorts: takeoverPorts}})
	n := Node{HostCIDRs: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")}}

	before := []ovs.TrackedConnection{tracked(7, 0, "10.244.0.3:1", "198.51.100.1:443", "198.51.100.1:443", "172.30.0.11:22")}
	for _, tt := range []struct {
		name string
		dump dump
		want bool
	}{
		{"too large", dump{err: tooLarge(1 << 20)}, false},
		{"one of before", dump{list: before}, false},
		{"it has gone", dump{}, true},
	} {
		tr.dump = &tt.dump
		if err := tr.sync(t.Context(), n); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}

		if got := tr.noneLeft.Load(); got != tt.want {
			t.Errorf("%s: none left is %t, want %t", tt.name, got, tt.want)
		}

		if failed := tr.record.read().Degraded[partTracking] != ""; failed != (tt.dump.err != nil) {
			t.Errorf("%s: degraded %q", tt.name, tr.record.read().Degraded[partTracking])
		}
	}
}
