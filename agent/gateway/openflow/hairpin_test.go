package openflow_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

func hairpin(n *corpus.Node) openflow.Hairpin {
	return openflow.Hairpin{
		Node4: n.Config.Node4, Node6: n.Config.Node6,
		OVN4: netip.MustParseAddr("169.254.169.1"), OVN6: netip.MustParseAddr("fd69::1"),
		Host4: netip.MustParseAddr("169.254.169.2"), Host6: netip.MustParseAddr("fd69::2"),
		HostAddrs: []netip.Addr{corpus.V4.Second, corpus.V6.Second}, ServiceCIDRs: n.Config.ServiceCIDRs, Masquerade: n.Config.Masquerade,
	}
}

// hop is a UDP packet that one side sends, and what the other gets.
type hop struct {
	name       string
	port       string // that it comes from
	src, dst   netip.AddrPort
	out        string // that it leaves by; "" for none
	src2, dst2 netip.AddrPort
}

func hops(f corpus.Family, h openflow.Hairpin) []hop {
	ovn, host := h.OVN4, h.Host4
	if f.Node.Is6() {
		ovn, host = h.OVN6, h.Host6
	}

	at := netip.AddrPortFrom

	const up, down = "patch", bridge

	return []hop{
		{"to a host endpoint", up, at(f.Node, 50000), at(host, 8080), down, at(ovn, 50000), at(f.Node, 8080)},
		{"its answer", down, at(f.Node, 8080), at(ovn, 50000), up, at(host, 8080), at(f.Node, 50000)},
		{"to a host endpoint, client kept", up, at(f.Remote, 4000), at(host, 8081), down, at(ovn, 4000), at(f.Node, 8081)},
		{"its answer, too", down, at(f.Node, 8081), at(ovn, 4000), up, at(host, 8081), at(f.Remote, 4000)},
		{"to another address of the host", up, at(f.Node, 50001), at(f.Second, 22), down, at(ovn, 50001), at(f.Second, 22)},
		{"answer of another address", down, at(f.Second, 22), at(ovn, 50001), up, at(f.Second, 22), at(f.Node, 50001)},
		{"host to service", down, at(host, 40000), at(f.ClusterIP, 80), up, at(host, 40000), at(f.ClusterIP, 80)},
		{"service's answer", up, at(f.ClusterIP, 80), at(host, 40000), down, at(f.ClusterIP, 80), at(host, 40000)},
		{"host to service by its own address", down, at(f.Node, 40001), at(f.ClusterIP, 80), up, at(host, 40001), at(f.ClusterIP, 80)},
		{"service's answer to that", up, at(f.ClusterIP, 80), at(host, 40001), down, at(f.ClusterIP, 80), at(f.Node, 40001)},
		{"to an address outside the hairpin", down, at(f.Node, 40000), at(ovn.Next().Next(), 80), "", netip.AddrPort{}, netip.AddrPort{}},
	}
}

// Both ways of the hairpin, by the flows of each layout and of the OpenFlow backend.
func TestHairpin(t *testing.T) {
	n := plainNode(0)
	static := func(l verdict.Layout, vlan uint16) func(*wires) []string {
		return func(w *wires) []string {
			return openflow.Static(openflow.StaticInput{Layout: l, Ports: w.ports, VLAN: vlan, Hairpin: hairpin(n)})
		}
	}

	whole := func(vlan uint16) func(*wires) []string {
		return func(w *wires) []string {
			in := w.input(n)
			config := *in.Config
			config.VLAN = vlan
			in.Config, in.Hairpin = &config, hairpin(n)
			in.Tables.Addrs[in.Hairpin.Host4], in.Tables.Addrs[in.Hairpin.Host6] = verdict.AddrHost, verdict.AddrHost

			return openflow.Flows(in)
		}
	}
	for name, flows := range map[string]func(*wires) []string{
		"direct": static(verdict.Direct, 0), "bridged": static(verdict.Bridged, 0), "dedicated": static(verdict.Dedicated, 0),
		"bridged vlan": static(verdict.Bridged, 100), "openflow": whole(0), "openflow vlan": whole(100),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWires(t)
			if name == "direct" {
				w.Vsctl(t, "del-port", bridge, "uplink")
			}

			if _, err := ovs.SyncBundle(t.Context(), w.Dir, bridge, flows(w)); err != nil {
				t.Fatal(err)
			}

			for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
				for _, h := range hops(f, hairpin(n)) {
					t.Run(f.Name+"/"+h.name, func(t *testing.T) { w.hop(t, h, strings.HasSuffix(name, "vlan")) })
				}
			}
		})
	}
}

// hop sends what h says. tagged: OVN's side has VLAN 100.
func (w *wires) hop(t *testing.T, h hop, tagged bool) {
	t.Helper()

	var by []string
	if h.out != "" {
		by = []string{h.out}
	}

	frame := corpus.IP{Src: h.src.Addr(), Dst: h.dst.Addr(), L4: udp(h.src, h.dst)}.Frame(corpus.OtherMAC, corpus.NodeMAC)
	if tagged && h.port == "patch" {
		frame = corpus.Tag(100, frame)
	}

	got := w.expect(t, h.port, frame, by...)
	if h.out == "" {
		return
	}

	h.check(t, got[h.out])

	if got[h.out].Tagged != (tagged && h.out == "patch") {
		t.Errorf("%s: tagged %t", h.name, got[h.out].Tagged)
	}
}

// check compares what came out.
func (h hop) check(t *testing.T, got verdict.Frame) {
	t.Helper()

	p := got.IP
	if src, dst := netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort); src != h.src2 || dst != h.dst2 {
		t.Errorf("%s: %s → %s becomes %s → %s, want %s → %s", h.name, h.src, h.dst, src, dst, h.src2, h.dst2)
	}

	if got.Dst != corpus.NodeMAC {
		t.Errorf("%s: to MAC %x", h.name, got.Dst)
	}
}

// udp has the checksum that conntrack wants.
func udp(src, dst netip.AddrPort) corpus.L4 {
	return udpOf(src, dst, 8)
}

func udpOf(src, dst netip.AddrPort, size int) corpus.L4 {
	l4 := corpus.UDP(src.Port(), dst.Port(), make([]byte, size)...)

	var sum uint32

	add := func(b []byte) {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	add(src.Addr().AsSlice())
	add(dst.Addr().AsSlice())
	add(l4.Data)

	sum += corpus.ProtoUDP + uint32(len(l4.Data))
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	binary.BigEndian.PutUint16(l4.Data[6:], ^uint16(sum))

	return l4
}
