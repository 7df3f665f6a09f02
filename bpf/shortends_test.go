package bpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestShortcuts_endWithSettings: a change of a pod's MTU, of the configuration or of addresses ends
// every shortcut. This includes shortcuts that are being learned from a packet inside OVS. A call that
// changes nothing leaves shortcuts alone.
func TestShortcuts_endWithSettings(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	addrs := []netip.Addr{v4.node, v4.second, v6.node, v6.second, encap} // as open has them

	for _, tt := range []struct {
		name   string
		change func() error
		lasts  bool
	}{
		{name: "pod's MTU as before", change: func() error { return r.g.AttachPod(r.pod, podMTU, true) }, lasts: true},
		{name: "addresses as before", change: func() error { return r.g.SyncAddrs(hosts(addrs...)) }, lasts: true},
		{name: "an address more", change: func() error { return r.g.SyncAddrs(hosts(append(addrs, v4.vip)...)) }},
		{name: "an address less", change: func() error { return r.g.SyncAddrs(hosts(addrs...)) }},
		{name: "configuration", change: func() error { return r.g.SetConfig(r.g.opts.Config) }},
		{name: "pod's MTU lowered", change: func() error { return r.g.AttachPod(r.pod, podMTU-100, true) }},
		{name: "pod may have none", change: func() error { return r.g.AttachPod(r.pod, podMTU-100, false) }},
	} {
		r.pass(t, tt.name, tt.change, tt.lasts)
	}
}

// pass makes a change while connections use their shortcuts, and while others have the packet inside
// OVS that makes theirs valid. It checks whether packets bypass OVS afterwards.
func (r *shortRig) pass(t *testing.T, name string, change func() error, lasts bool) {
	t.Helper()
	forgetShortcuts(t, r.g)

	wire, pod := "snat_port", ""
	if lasts {
		wire, pod = "snat_cached", "out_cached"
	}

	var (
		conns []conn
		left  []func()
	)

	r.clearSlots(t)

	for _, f := range []family{v4, v6} {
		used, learned := conn{f, protoTCP, 40000, 50000, 30}, conn{f, protoTCP, 40001, 50001, 30}
		r.openSurely(t, used)
		_, number := r.fromPod(t, learned.segment(true, true, flagACK, 64))
		r.leave(t, number, learned.segment(true, false, flagACK, 62))
		r.arrive(t, learned.segment(false, false, flagACK, 60))
		conns = append(conns, used, learned)
	}

	for _, c := range []conn{conns[1], conns[3]} {
		_, number := r.fromPod(t, c.segment(true, true, flagACK, 64))

		var s gatewaySlot
		if err := r.g.objs.Slots.Lookup(number-1, &s); err != nil {
			t.Fatal(err)
		}

		left = append(left, func() {
			if err := r.g.objs.Slots.Put(number-1, s); err != nil {
				t.Fatal(err)
			}

			r.leave(t, number, c.segment(true, false, flagACK, 62))
		})
	}

	r.must(t, change)

	for _, leave := range left {
		leave()
	}

	for i, c := range conns {
		if lasts && i%2 == 1 {
			continue // on a slow machine, the packet may have been inside OVS for too long
		}

		what := []string{"used", "learned"}[i%2]
		if got := r.arrive(t, c.segment(false, false, flagACK, 60)); got.reason != wire {
			t.Errorf("%s: packet from the wire to a shortcut that was %s, %s: by %q, want %q", name, what, c.f.name, got.reason, wire)
		}

		if got, _ := r.fromPod(t, c.segment(true, true, flagACK, 64)); got.reason != pod {
			t.Errorf("%s: packet of the pod to a shortcut that was %s, %s: by %q, want %q", name, what, c.f.name, got.reason, pod)
		}
	}
}

// openSurely is open until the shortcuts are valid: a slow machine may keep a packet inside OVS for
// too long.
func (r *shortRig) openSurely(t *testing.T, c conn) {
	t.Helper()

	for range 50 {
		r.open(t, c)

		pod, _ := r.fromPod(t, c.segment(true, true, flagACK, 64))
		if pod.reason == "out_cached" && r.arrive(t, c.segment(false, false, flagACK, 60)).reason == "snat_cached" {
			return
		}
	}

	t.Fatalf("%s, protocol %d: no packet bypasses OVS", c.f.name, c.proto)
}

// TestShortcuts_followPodMTU: after the pod's MTU is lowered, no packet from the wire that is longer
// bypasses OVS, which answers it with ICMP. Shorter ones do again.
func TestShortcuts_followPodMTU(t *testing.T) {
	const lower = podMTU - 100

	r := newShortRig(t, verdict.Direct)

	for _, f := range []family{v4, v6} {
		c := conn{f, protoUDP, 40000, 50000, 30}
		fits, long := c, c
		headers := len(f.header()) + 8
		fits.payload, long.payload = lower-headers, lower-headers+1
		expect := func(step string, c conn, want string) {
			t.Helper()

			if got := r.arrive(t, c.segment(false, false, 0, 60)); got.reason != want {
				t.Errorf("%s, %s: by %q, want %q", f.name, step, got.reason, want)
			}
		}

		r.must(t, func() error { return r.g.AttachPod(r.pod, podMTU, true) })
		r.openSurely(t, c)
		expect("longer than the lower MTU, before", long, "snat_cached")
		r.must(t, func() error { return r.g.AttachPod(r.pod, lower, true) })
		expect("longer than the lower MTU, at once", long, "snat_port")
		r.openSurely(t, c)
		expect("as long as the lower MTU", fits, "snat_cached")
		expect("longer than the lower MTU", long, "snat_port")
	}
}

// setIndex returns code that sets tc_index and the mark of a packet, as a program or a filter of a
// pod with CAP_NET_ADMIN can do inside the pod.
func setIndex(index, mark int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, index),
		asm.StoreMem(asm.R1, skbTCIndex, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R2, mark),
		asm.StoreMem(asm.R1, skbMark, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	}
}

// Offsets of fields of struct __sk_buff.
const (
	skbMark    = 8
	skbTCIndex = 44
)

// record returns code that writes a field of a packet to the first cell of m, and counts the packet in
// the second. The code then goes on with end.
func record(m *ebpf.Map, field int16, end ...asm.Instruction) asm.Instructions {
	return append(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, field, asm.Word),
		asm.LoadMapValue(asm.R2, m.FD(), 0),
		asm.StoreMem(asm.R2, 0, asm.R6, asm.Word),
		asm.Mov.Imm(asm.R3, 1),
		asm.Add.Imm(asm.R2, 4),
		asm.StoreXAdd(asm.R2, asm.R3, asm.Word),
	}, end...)
}

// newRecord returns a map for record.
func newRecord(t *testing.T) *ebpf.Map {
	t.Helper()

	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { m.Close() })

	return m
}

// awaitRecord sends a packet, waits until it is recorded, and returns its field.
func awaitRecord(t *testing.T, m *ebpf.Map, send func()) (field uint32) {
	t.Helper()

	var was, now [2]uint32
	if err := m.Lookup(uint32(0), &was); err != nil {
		t.Fatal(err)
	}

	send()
	eventually(t, "a packet of the pod", func() bool { return m.Lookup(uint32(0), &now) == nil && now[1] > was[1] })

	return now[0]
}

// forgingPod adds a pod that sets tc_index and the mark of its packets. A program at the host's end of
// its device records the tc_index in seen, and goes on with end. send sends a frame of the pod.
func (n *node) forgingPod(t *testing.T, index, mark int32, end ...asm.Instruction) (pod int, seen *ebpf.Map, send func(frame []byte)) {
	t.Helper()
	podNS := newNamespace(t)
	podNS.must(t, func() error { return writeSysctl("net/ipv6/conf/default/disable_ipv6", "1") })
	pod = n.veth(t, "pod0", routerMAC, podNS, "eth0")
	seen = newRecord(t)
	n.attachTest(t, podNS, podNS.up(t, "eth0"), ebpf.AttachTCXEgress, link.Tail(), setIndex(index, mark))
	n.attachTest(t, n.namespace, pod, ebpf.AttachTCXIngress, link.Tail(), record(seen, skbTCIndex, end...))

	sender := packetSender(t, podNS, podNS.up(t, "eth0"))

	return pod, seen, func(frame []byte) {
		t.Helper()

		if err := sender([10]byte{}, frame); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPodProgram_clearsIndex: what a pod has written to tc_index does not pass the program at its
// device, whether or not the pod may have shortcuts, and whatever the packet is.
func TestPodProgram_clearsIndex(t *testing.T) {
	needTCX(t)

	for _, layout := range shortLayouts {
		for _, allowed := range []bool{true, false} {
			n := quietDevices(t, vethWire)
			c := n.config()
			c.Layout = layout
			g := n.open(t, func(o *Options) { o.Config, o.Shortcuts = c, ShortcutOptions{On: true, Entries: 64} })
			pod, seen, send := n.forgingPod(t, 0x686f, 0, asm.Mov.Imm(asm.R0, retDrop), asm.Return())

			toPod := v4
			toPod.remote = netip.MustParseAddr("10.244.2.3") // never observed: it gets no slot

			frames := map[string][]byte{
				"UDP":    conn{toPod, protoUDP, 40000, 50000, 30}.segment(true, true, 0, 64),
				"ARP":    ether(routerMAC, podMAC, 0x0806, arpPacket(1, v4.pod, v4.remote)),
				"tagged": join(routerMAC, podMAC, be16(0x8100), be16(7), be16(0x0800), v4.ip(v4.pod, v4.remote, protoUDP, udp(1, 2))),
			}
			for name, frame := range frames {
				forged := func() { send(frame) }
				if !allowed && name == "UDP" { // without the program, it arrives
					if index := awaitRecord(t, seen, forged); index != 0x686f {
						t.Fatalf("tc_index of the pod is %#x at its device", index)
					}
				}

				n.must(t, func() error { return g.AttachPod(pod, podMTU, allowed) })

				if index := awaitRecord(t, seen, forged); index != 0 {
					t.Errorf("%s, shortcuts allowed %t, %s: tc_index %#x has passed", layout, allowed, name, index)
				}

				n.must(t, func() error { return g.DetachPod(pod) })
			}
		}
	}
}
