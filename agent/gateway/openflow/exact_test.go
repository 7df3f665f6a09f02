package openflow_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// tally counts the frames that a test sends, and reads the flows' counts.
type tally struct {
	*rig
	counts *ovs.FlowCounts
	sent   map[string]ovs.FlowCount
	times  int

	learned string // flows, when last looked at
}

func newTally(t *testing.T) *tally {
	t.Helper()
	r := newRig(t)

	var numbers []uint8
	for _, c := range openflow.Counts() {
		numbers = append(numbers, c.Number)
	}

	y := &tally{rig: r, counts: ovs.NewFlowCounts(r.Dir, bridge, numbers), sent: map[string]ovs.FlowCount{}}
	ctx, cancel := context.WithCancel(t.Context())

	done := make(chan error, 1)
	go func() { done <- y.counts.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testnode.Eventually(t, "the bridge counts", func() error {
		_, err := y.counts.Read(t.Context())
		return err
	})

	return y
}

// parcel is a frame, its port, and its expected counter.
type parcel struct {
	reason, port string
	frame        []byte
}

// send sends each parcel a different number of times, so that counters cannot be confused.
func (y *tally) send(t *testing.T, parcels ...parcel) {
	t.Helper()

	for _, p := range parcels {
		y.times++

		const most = 64 // a dummy port has room for 100
		for left := y.times; left > 0; left -= most {
			y.receive(t, p.port, slices.Repeat([]string{hex.EncodeToString(p.frame)}, min(left, most)))
		}

		s := y.sent[p.reason]
		y.sent[p.reason] = ovs.FlowCount{Packets: s.Packets + uint64(y.times), Bytes: s.Bytes + uint64(y.times*len(p.frame))}
	}
}

// receive lets a port receive frames, and waits until the datapath has looked them up.
func (y *tally) receive(t *testing.T, port string, frames []string) {
	t.Helper()

	want := y.lookups(t) + len(frames)
	if _, err := y.ctl.Call(t.Context(), "netdev-dummy/receive", append([]string{port}, frames...)...); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "frames are looked up", func() error {
		if got := y.lookups(t); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}

		return nil
	})
}

func (y *tally) read(t *testing.T) map[string]ovs.FlowCount {
	t.Helper()

	sums, err := y.counts.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return byReason(func(number uint8) ovs.FlowCount { return sums[number] })
}

// byReason returns the non-zero counts.
func byReason(of func(number uint8) ovs.FlowCount) map[string]ovs.FlowCount {
	got := map[string]ovs.FlowCount{}

	for _, c := range openflow.Counts() {
		if s := of(c.Number); s != (ovs.FlowCount{}) {
			got[c.Reason] = s
		}
	}

	return got
}

// check waits until OVS has counted everything and fails on missing or extra packets.
func (y *tally) check(t *testing.T, when string) {
	t.Helper()

	var want uint64
	for _, s := range y.sent {
		want += s.Packets
	}

	testnode.Eventually(t, fmt.Sprint(when, ": packets are counted"), func() error {
		var got uint64
		for _, s := range y.read(t) {
			got += s.Packets
		}

		if got < want {
			return fmt.Errorf("%d of %d", got, want)
		}

		return nil
	})

	if diff := cmp.Diff(y.sent, y.read(t)); diff != "" {
		t.Fatalf("%s (-sent +counted):\n%s", when, diff)
	}
}

// checkFlows checks the flows' own counts, while no flow was deleted.
func (y *tally) checkFlows(t *testing.T) {
	t.Helper()

	var numbers []uint8
	for _, c := range openflow.Counts() {
		numbers = append(numbers, c.Number)
	}

	sums, err := ovs.ReadFlowSums(t.Context(), y.Dir, bridge, numbers)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(y.sent, byReason(func(number uint8) ovs.FlowCount { return sums[number] })); diff != "" {
		t.Errorf("asked once (-sent +counted):\n%s", diff)
	}
}

// checkFronts checks the count of each frontend's flow.
func (y *tally) checkFronts(t *testing.T) {
	t.Helper()

	numbers := []uint8{openflow.CountOf(verdict.Service).Number, openflow.CountOf(verdict.ServiceHosted).Number}

	fronts, err := ovs.ReadFrontFlows(t.Context(), y.Dir, bridge, numbers)
	if err != nil {
		t.Fatal(err)
	}

	sum, there := ovs.FlowCount{}, map[netip.AddrPort]uint8{}
	for _, f := range fronts {
		there[netip.AddrPortFrom(f.Addr, f.Port)] = f.Proto
		sum.Packets, sum.Bytes = sum.Packets+f.Packets, sum.Bytes+f.Bytes
	}

	want := ovs.FlowCount{}
	for _, reason := range []string{"service", "service_host"} {
		want.Packets, want.Bytes = want.Packets+y.sent[reason].Packets, want.Bytes+y.sent[reason].Bytes
	}

	v4, v6 := netip.AddrPortFrom(corpus.V4.Node, 30000), netip.AddrPortFrom(corpus.V6.Node, 30000)
	if sum != want || want.Packets == 0 || there[v4] != corpus.ProtoTCP || there[v6] != corpus.ProtoTCP {
		t.Errorf("frontends have counted %+v, sent %+v; %v", sum, want, there)
	}
}

// mix returns frames of each kind in one family, by port.
func mix(f corpus.Family) []parcel {
	rest := make([]byte, 16)
	ether := func(dst, src verdict.MAC, kind uint16) []byte { return corpus.Ether(dst, src, kind, rest) }
	arp := func(op uint16, sender, target netip.Addr) []byte {
		return corpus.Ether(corpus.NodeMAC, corpus.PeerMAC, corpus.EtherARP, corpus.ARP(op, corpus.PeerMAC, sender, target))
	}
	v4, v6 := corpus.V4, corpus.V6

	return []parcel{
		{"default", "uplink", f.In(corpus.TCP(4000, 22, corpus.ACK))},
		{"default", "uplink", f.In(corpus.UDP(4000, 53, 1, 2, 3))},
		{"default", "uplink", f.In(corpus.GRE())},
		{"geneve", "uplink", f.In(corpus.UDP(4000, 6081, rest...))},
		{"service", "uplink", f.In(corpus.TCP(4000, 30000, corpus.SYN))},
		{"service", "uplink", f.Rx(f.Remote, f.VIP, corpus.TCP(4000, 1000, corpus.ACK, 1))},
		{"snat_port", "uplink", f.In(corpus.TCP(80, 50000, corpus.ACK, 1, 2, 3))},
		{"snat_port", "uplink", f.In(corpus.UDP(53, 50000, 1))},
		{"snat_syn", "uplink", f.In(corpus.TCP(80, 50000, corpus.SYN))},
		{"icmp_echo", "uplink", f.In(f.Ping(1))},
		{"icmp_echo_reply_both", "uplink", f.In(f.Pong(1))},
		{"icmp_error_both", "uplink", f.In(f.Unreachable(f.Sent(f.Node, corpus.UDP(50000, 53))))},
		{"not_ours", "uplink", f.Rx(f.Remote, f.Foreign, corpus.UDP(4000, 53))},
		{"not_ip", "uplink", ether(corpus.NodeMAC, corpus.PeerMAC, 0x88b5)},
		{"other_mac", "uplink", ether(corpus.OtherMAC, corpus.PeerMAC, 0x88b5)},
		{"vlan", "uplink", corpus.Tag(7, f.In(corpus.UDP(4000, 53)))},
		{"arp_request", "uplink", arp(1, v4.Foreign, v4.Node)},
		{"arp_reply", "uplink", arp(2, v4.Foreign, v4.Node)},
		{"nd_advert", "uplink", v6.In(corpus.Advert(v6.Foreign, true))},
		{"out", "patch", f.Out(corpus.UDP(50000, 53, 1))},
		{"out_learned", "patch", f.Out(corpus.ESP())},
		{"svc_leak", "patch", f.Tx(f.Node, f.ClusterIP, corpus.TCP(50000, 80, corpus.SYN))},
		{"unsnated", "patch", f.Tx(f.Pod, f.Remote, corpus.UDP(50000, 53))},
		{"bad_mac", "patch", f.Rx(f.Node, f.Remote, corpus.UDP(50000, 53))},
		{"hairpin", "patch", f.Tx(f.Remote, f.Second, corpus.UDP(50000, 53))},
		{"host_out", bridge, f.Out(corpus.TCP(22, 4000, corpus.ACK, 1))},
		{"host_ovn", bridge, f.Tx(f.Node, f.ClusterIP, corpus.UDP(4000, 53, 1))},
	}
}

// fragments returns fragments of datagrams. The userspace datapath outputs them unchanged.
func fragments(f corpus.Family) []parcel {
	var out []parcel

	whole := corpus.UDP(53, 50000, make([]byte, 1800)...).Data
	for id := range uint32(3) {
		for _, at := range [][2]int{{0, 1400}, {1400, len(whole)}} {
			out = append(out, parcel{"fragment_early", "uplink", corpus.IP{
				Src: f.Remote, Dst: f.Node, L4: corpus.L4{Proto: corpus.ProtoUDP, Data: whole[at[0]:at[1]]},
				Fragment: &corpus.Fragment{ID: id, Offset: uint16(at[0]), More: at[1] < len(whole)},
			}.Frame(corpus.NodeMAC, corpus.PeerMAC)})
		}
	}

	return out
}

// The flows' counts equal the sent packets and bytes, even if flows are changed, deleted or lost
// meanwhile.
func TestExact(t *testing.T) {
	y := newTally(t)
	n := plainNode(1)

	var p openflow.Planner

	sync := ovs.FlowSync{RunDir: y.Dir, Bridge: bridge}
	plan := func() openflow.Change {
		in := y.input(n)
		in.Hairpin = hairpin(n)

		return p.Flows(in)
	}
	all := func() {
		t.Helper()
		plan()

		if _, err := sync.All(t.Context(), p.All()); err != nil {
			t.Fatal(err)
		}
	}
	all()

	everything := slices.Concat(mix(corpus.V4), mix(corpus.V6))
	y.send(t, everything...)

	y.times = 0
	for _, f := range slices.Concat(fragments(corpus.V4), fragments(corpus.V6)) {
		y.times = 0 // each once, or they would overlap
		y.send(t, f)
	}

	y.check(t, "a mix")
	y.checkFlows(t)
	y.checkFronts(t)

	node := netip.AddrPortFrom(corpus.V4.Node, 30000)
	for _, to := range []struct {
		reason string
		owner  verdict.ServiceOwner
	}{{"service_host", verdict.ServiceHost}, {"default", verdict.ServiceNone}, {"service", verdict.ServiceOVN}} {
		n.Services[verdict.ServiceKey{Addr: node.Addr(), Proto: corpus.ProtoTCP, Port: node.Port()}] = to.owner

		c := plan()
		if _, err := sync.Update(t.Context(), c.Write, c.Gone); err != nil {
			t.Fatal(err)
		}

		y.check(t, "then it is "+to.reason)
		y.revalidate(t)
		y.send(t, parcel{to.reason, "uplink", corpus.V4.In(corpus.TCP(4000, node.Port(), corpus.ACK))})
		y.check(t, to.reason)
	}

	n.Config.InSync = !n.Config.InSync // some are written with other actions, and count the same

	all()
	y.check(t, "other flows")

	testnode.Run(t, "ovs-ofctl", "del-flows", "unix:"+y.Dir+"/"+bridge+".mgmt")
	y.check(t, "flows deleted by another program")
	all()
	y.revalidate(t)
	y.send(t, everything...)
	y.check(t, "flows written again")

	y.stop()
	y.check(t, "ovs-vswitchd has ended")
	y.stop = y.start(t)
	testnode.Eventually(t, "flows are written", func() error {
		_, err := sync.All(t.Context(), p.All())
		return err
	})
	y.check(t, "ovs-vswitchd has restarted")
	y.send(t, everything...)
	y.check(t, "a mix again")
}

// revalidate makes the datapath drop cached flows.
func (y *tally) revalidate(t *testing.T) {
	t.Helper()

	if _, err := y.ctl.Call(t.Context(), "revalidator/wait"); err != nil {
		t.Fatal(err)
	}
}
