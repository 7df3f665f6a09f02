package busy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

func counters(packets map[string]uint64) []bpf.Counter {
	out := bpf.Reasons()
	for i := range out {
		out[i].Packets, out[i].Bytes = packets[out[i].Reason], 100*packets[out[i].Reason]
	}

	return out
}

// What is known exactly is shared as the sample is; other classes stay apart.
func TestGroups(t *testing.T) {
	f, tally := corpus.V4, New(verdict.Direct)
	add := func(times int, reason string, frame []byte) {
		for range times {
			tally.Add(reason, verdict.Parse(frame), 100)
		}
	}
	add(3, "default", f.In(corpus.TCP(4000, 22, corpus.ACK)))
	add(1, "default", f.In(corpus.TCP(4001, 22, corpus.ACK)))
	add(5, "snat_port", corpus.V6.In(corpus.UDP(53, 50000)))
	add(2, "unsnated", f.Tx(f.Pod, f.Remote, corpus.UDP(1, 2)))
	add(1, "arp_reply", corpus.Ether(corpus.NodeMAC, corpus.PeerMAC, corpus.EtherARP, corpus.ARP(2, corpus.PeerMAC, f.Peer, f.Node)))
	add(9, "not_ip", corpus.Ether(corpus.NodeMAC, corpus.PeerMAC, 0x88b5, make([]byte, 46)))

	before := counters(map[string]uint64{"default": 1000, "snat_port": 7, "snat_cached": 1, "not_ip": 4})
	after := counters(map[string]uint64{"default": 1800, "snat_port": 17, "snat_cached": 11, "unsnated": 4, "arp_reply": 2, "not_ip": 4}) // not_ip has not been counted yet

	type line struct {
		class    string
		rate     float64
		src, dst string
		packets  float64
	}

	var got []line

	for _, g := range tally.Groups(before, after, 2, 1) {
		if g.Rate.Bytes != 100*g.Rate.Packets || len(g.Flows) != 1 {
			t.Errorf("%+v", g)
			continue
		}

		b := g.Flows[0]
		got = append(got, line{g.Class.Port + " " + g.Class.Verdict, g.Rate.Packets, b.Src.String(), b.Dst.String(), b.Rate.Packets})
	}

	want := []line{
		{"host host", 400, "198.51.100.1:4000", "172.30.0.11:22", 300},
		{"ovn ovn", 10, "[2001:db8:51::1]:53", "[fd00:172:30::11]:50000", 10}, // by shortcuts, too
		{"none drop", 2, "10.244.1.3:1", "198.51.100.1:2", 2},
		{"both both", 1, "172.30.0.12:0", "172.30.0.11:0", 1},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Error(diff)
	}

	if all := tally.Groups(before, after, 2, 9); len(all[0].Flows) != 2 || all[0].Flows[1].Rate.Packets != 100 {
		t.Errorf("%+v", all[0])
	}
}

// In layout bridged the uplink's sampling program sees the packets that pods send by a shortcut. In
// layout direct none does, so they must not raise the rates of flows without a shortcut.
func TestGroups_shortcutsOfPods(t *testing.T) {
	before, after := counters(nil), counters(map[string]uint64{"out": 10, "out_cached": 90})

	for layout, want := range map[verdict.Layout]float64{verdict.Direct: 10, verdict.Bridged: 100} {
		tally := New(layout)
		tally.Add("out", verdict.Parse(corpus.V4.Tx(corpus.V4.Node, corpus.V4.Remote, corpus.UDP(50000, 53))), 100)

		got := tally.Groups(before, after, 1, 5)
		if len(got) != 1 || len(got[0].Flows) != 1 || got[0].Rate.Packets != 100 || got[0].Flows[0].Rate.Packets != want {
			t.Errorf("layout %s: got %+v, want a class of 100 packets and a flow of %v", layout, got, want)
		}
	}
}
