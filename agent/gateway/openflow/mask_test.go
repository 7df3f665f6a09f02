package openflow_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// plainNode returns a node in a cluster with this number of Services, each with a NodePort and a
// VIP in both families.
func plainNode(services int) *corpus.Node {
	n := &corpus.Node{
		Config: verdict.Config{
			Connected: true, NodeMAC: corpus.NodeMAC, Node4: corpus.V4.Node, Node6: corpus.V6.Node,
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: 6081,
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
			Masquerade:   []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("fd69::/125")},
			Mode:         verdict.Mode{InSync: true},
		},
		Addrs: map[netip.Addr]verdict.AddrKind{
			corpus.V4.Node: verdict.AddrHost, corpus.V4.Second: verdict.AddrHost, corpus.V6.Node: verdict.AddrHost,
			corpus.V4.Peer: verdict.AddrPeer, corpus.V6.Peer: verdict.AddrPeer,
			corpus.V4.VIP: verdict.AddrVIP, corpus.V6.VIP: verdict.AddrVIP,
		},
		Services: map[verdict.ServiceKey]verdict.ServiceOwner{},
	}

	for i := range services {
		for _, k := range serviceKeys(i) {
			n.Services[k] = verdict.ServiceOVN
		}
	}

	return n
}

// serviceKeys are the frontends of one Service.
func serviceKeys(i int) []verdict.ServiceKey {
	var keys []verdict.ServiceKey
	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		keys = append(keys,
			verdict.ServiceKey{Addr: f.Node, Proto: corpus.ProtoTCP, Port: uint16(30000 + i)},
			verdict.ServiceKey{Addr: f.VIP, Proto: corpus.ProtoTCP, Port: uint16(1000 + i)})
	}

	return keys
}

// The host's traffic is matched only by its own address and the leading bits of its port.
func TestHostMask(t *testing.T) {
	r := newRig(t)
	n := plainNode(1000)
	r.install(t, n)

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		masks := map[string]bool{}

		for _, l4 := range []corpus.L4{
			corpus.TCP(50000, 22, corpus.SYN), corpus.TCP(50000, 22, corpus.ACK), corpus.TCP(443, 40000, corpus.ACK),
			corpus.UDP(53, 40001), corpus.UDP(50000, 6081), corpus.TCP(40000, 10250, corpus.ACK), corpus.TCP(6443, 45000, corpus.ACK),
		} {
			for dir, frame := range map[verdict.Direction][]byte{
				verdict.FromWire: f.In(l4), verdict.FromHost: f.Out(l4),
			} {
				trace := r.trace(t, dir, frame)
				for _, wide := range []string{"nw_src", "ipv6_src", "tp_src", "dl_src", "tcp_flags", "ct_", "nw_ttl", "pkt_mark"} {
					if strings.Contains(trace.Megaflows[0], wide) {
						t.Errorf("%s looks at %s: %s", dir, wide, trace.Megaflows[0])
					}
				}

				if dir == verdict.FromHost && strings.Contains(trace.Megaflows[0], "tp_") {
					t.Errorf("%s looks at a port: %s", dir, trace.Megaflows[0])
				}

				masks[trace.Megaflows[0]] = true
			}
		}

		for m := range masks {
			t.Log(m)
		}
	}
}

// A change of a Service changes only its own flows.
func TestServiceChange(t *testing.T) {
	r := newRig(t)

	for _, services := range []int{0, 1000} {
		n := plainNode(services)
		sync := func(want int) {
			t.Helper()

			got, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, openflow.Flows(r.input(n)))
			if err != nil || want >= 0 && got != want {
				t.Fatalf("%d Services: %d messages, want %d, error %v", services, got, want, err)
			}
		}
		sync(-1)
		sync(0)
		t.Logf("%d Services: %d flows", services, len(openflow.Flows(r.input(n))))

		keys := serviceKeys(services + 1)
		for _, k := range keys {
			n.Services[k] = verdict.ServiceOVN
		}

		sync(len(keys))
		n.Services[keys[0]] = verdict.ServiceHost // counts as something else

		sync(2)

		for _, k := range keys {
			delete(n.Services, k)
		}

		sync(len(keys))
		sync(0)
	}
}

func TestPorts(t *testing.T) {
	for _, ports := range []openflow.Ports{{}, {Uplink: 1}, {Patch: 2}} {
		r := newRig(t)
		n := plainNode(1)
		in := r.input(n)

		in.Ports = ports
		if _, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, openflow.Flows(in)); err != nil {
			t.Fatal(err)
		}

		got := r.trace(t, verdict.FromWire, corpus.V4.In(corpus.UDP(53, 50000))).Outputs(0)
		if fmt.Sprint(got) != "["+bridge+"]" {
			t.Errorf("%+v: OVN's packet to %v, want to the host", ports, got)
		}
	}
}
