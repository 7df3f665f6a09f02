package bpf

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var shortLayouts = []verdict.Layout{verdict.Direct, verdict.Bridged}

// expect fails unless the program did that.
func (s sight) expect(t *testing.T, step string, ret uint32, reason string, out []byte) {
	t.Helper()

	if s.ret != ret || s.reason != reason || !bytes.Equal(s.out, out) {
		t.Errorf("%s: returned %d by %q, want %d by %q\n got %x\nwant %x", step, int32(s.ret), s.reason, int32(ret), reason, s.out, out)
	}
}

// retToOVS is what the uplink's program returns for OVN's packets; retOut, for those that leave.
func retToOVS(l verdict.Layout) uint32 {
	if l == verdict.Direct {
		return retRedirect
	}

	return retNext
}

// A connection goes past OVS once a packet of each direction has passed it, the pod's last. Frames
// are then the same as through OVS.
func TestShortcut_life(t *testing.T) {
	for _, layout := range shortLayouts {
		for _, f := range []family{v4, v6} {
			r := newShortRig(t, layout)
			for name, c := range map[string]conn{
				"udp": {f, protoUDP, 40000, 50000, 30}, "tcp": {f, protoTCP, 40000, 50000, 31}, "same port": {f, protoTCP, 50000, 50000, 8},
				"nodeport tcp": {f, protoTCP, 8080, 30080, 9}, "nodeport udp": {f, protoUDP, 8053, 30053, 100},
			} {
				t.Run(layout.String()+" "+f.name+" "+name, func(t *testing.T) { testLife(t, r, c) })
			}
		}
	}
}

func testLife(t *testing.T, r *shortRig, c conn) {
	passes, cached := "snat_port", "snat_cached"
	if c.out < 49152 {
		passes, cached = "service", "service_cached"
	}

	toOVS := retToOVS(r.g.opts.Config.Layout)
	in := func(step string, flags uint8, past bool) {
		t.Helper()

		frame := c.segment(false, false, flags, 60)
		if past {
			r.arrive(t, frame).expect(t, step, retRedirect, cached, c.segment(false, true, flags, 58))
			return
		}

		r.arrive(t, frame).expect(t, step, toOVS, passes, frame)
	}
	observed := true
	out := func(step string, flags uint8, past bool) {
		t.Helper()

		frame := c.segment(true, true, flags, 64)

		got, number := r.fromPod(t, frame)
		if past {
			got.expect(t, step, retRedirect, "out_cached", c.segment(true, false, flags, 62))
			return
		}

		got.expect(t, step, retNext, "", frame)

		if (number != 0) != observed {
			t.Errorf("%s: slot %d, observed %t", step, number, observed)
		}

		after := c.segment(true, false, flags, 62)
		r.leave(t, number, after).expect(t, step+", after OVS", toOVS, "out", after)
	}
	out("first", flagACK, false)
	out("again, nothing has come back", flagACK, false)
	in("answer", flagACK, false)
	in("second answer, the pod has not sent since", flagACK, false)
	out("proof that both directions are allowed", flagACK, false)

	for range 3 {
		out("short", flagACK, true)
		in("short answer", flagACK, true)
	}

	if err := r.g.ForgetShortcuts(); err != nil {
		t.Fatal(err)
	}

	in("new epoch", flagACK, false)
	out("new epoch", flagACK, false)
	in("valid again", flagACK, true)
	out("valid again", flagACK, true)

	if c.proto == protoTCP {
		in("FIN", flagACK|flagFIN, false)
		in("after FIN", flagACK, false)

		observed = false

		out("FIN", flagACK|flagFIN, false)
		in("after the pod's FIN", flagACK, false)

		for range 3 { // few packets follow, and teach nothing
			out("after FIN", flagACK, false)
		}

		observed = true

		out("half closed: proof, after the packet from the wire", flagACK, false)
		in("half closed", flagACK, true)

		observed = false

		out("RST", flagRST, false)
		in("after RST", flagACK, false)

		observed = true

		out("SYN of the next connection", flagSYN, false)

		if c.out == 50000 {
			in("SYN-ACK", flagSYN|flagACK, false)
		}
	}
}

// A packet that a valid shortcut does not fit goes to OVS unchanged, and so does each one of a
// connection that OVS has not passed in both directions.
func TestShortcut_refuses(t *testing.T) {
	for _, f := range []family{v4, v6} {
		for _, proto := range []uint8{protoTCP, protoUDP} {
			c := conn{f, proto, 40000, 50000, 30}
			r := newShortRig(t, verdict.Direct)
			edit := func(frame []byte, at int, to byte) []byte {
				frame[at] = to
				return frame
			}
			longer := c

			longer.payload++
			for name, frame := range map[string][]byte{
				"TTL":          c.segment(true, true, flagACK, 2),
				"another MAC":  edit(c.segment(true, true, flagACK, 64), 11, 9),
				"longer":       longer.segment(true, true, flagACK, 64),
				"options":      edit(c.segment(true, true, flagACK, 64), 14, 0x46),
				"another port": edit(c.segment(true, true, flagACK, 64), 14+len(f.header())+3, 9),
				"cut short":    c.segment(true, true, flagACK, 64)[:60],
			} {
				r.open(t, c)
				got, _ := r.fromPod(t, frame)
				got.expect(t, f.name+" pod "+name, retNext, "", frame)
			}

			frame := c.segment(true, true, flagACK, 64)
			r.open(t, c)
			r.at(t, "pod_direct", r.uplink, 0, frame).expect(t, "another device", retNext, "", frame)

			for name, frame := range map[string][]byte{
				"TTL":       c.segment(false, false, flagACK, 2),
				"longer":    conn{f, proto, 40000, 50000, podMTU - 27}.segment(false, false, flagACK, 64),
				"options":   edit(c.segment(false, false, flagACK, 64), 14, 0x46),
				"cut short": c.segment(false, false, flagACK, 64)[:60],
			} {
				r.open(t, c)

				if got := r.arrive(t, frame); got.reason == "snat_cached" || !bytes.Equal(got.out, frame) {
					t.Errorf("%s wire %s: by %s: %x", f.name, name, got.reason, got.out)
				}
			}

			r.open(t, c)
			openGate(t, r.g, SocketKey{proto, 50000})

			got, _ := r.fromPod(t, frame)
			if proto == protoUDP {
				got.expect(t, "port of a host socket", retNext, "", frame)
			} else if got.reason != "out_cached" {
				t.Errorf("TCP from a port of a host socket: %s", got.reason)
			}

			openGate(t, r.g)
			r.must(t, func() error { return r.g.DetachPod(r.pod) })

			in := c.segment(false, false, flagACK, 64)
			r.arrive(t, in).expect(t, "the pod is gone", retRedirect, "snat_port", in)
		}
	}
}

// A packet from the wire proves that its direction is allowed only until flows change.
func TestShortcut_proofOfEpoch(t *testing.T) {
	for _, f := range []family{v4, v6} {
		c := conn{f, protoTCP, 40000, 50000, 30}
		r := newShortRig(t, verdict.Direct)
		pass := func() {
			t.Helper()
			_, number := r.fromPod(t, c.segment(true, true, flagACK, 64))
			r.leave(t, number, c.segment(true, false, flagACK, 62))
		}
		pass()

		in := c.segment(false, false, flagACK, 60)
		r.arrive(t, in)
		r.must(t, r.g.ForgetShortcuts)
		pass()
		r.arrive(t, in).expect(t, "after a packet of the pod only", retRedirect, "snat_port", in)
		pass()

		if got := r.arrive(t, in); got.reason != "snat_cached" {
			t.Errorf("%s after both: %s", f.name, got.reason)
		}
	}
}

// Two connections of IPv6 whose keys are the same never use each other's shortcut. The later one has
// the entry.
func TestShortcut_keysCollide(t *testing.T) {
	w := words(v6.remote)
	w[2]++
	w[3] -= 0x85ebca6b // as digest() in short.h weighs them
	other := v6

	other.remote = addrOf(w)
	if keyAddr(other.remote) != keyAddr(v6.remote) || other.remote == v6.remote {
		t.Fatalf("%s and %s have the digests %x and %x", v6.remote, other.remote, keyAddr(v6.remote), keyAddr(other.remote))
	}

	r := newShortRig(t, verdict.Direct)

	a, b := conn{v6, protoUDP, 40000, 50000, 30}, conn{other, protoUDP, 40000, 50000, 30}
	for _, turn := range []struct{ has, lacks conn }{{a, b}, {b, a}, {a, b}} {
		r.open(t, turn.has)

		for _, past := range []bool{false, true} {
			c, out, in := turn.lacks, "", "snat_port"
			if past {
				c, out, in = turn.has, "out_cached", "snat_cached"
			}

			if got, _ := r.fromPod(t, c.segment(true, true, 0, 64)); got.reason != out {
				t.Errorf("pod to %s: by %q, want %q", c.f.remote, got.reason, out)
			}

			if got := r.arrive(t, c.segment(false, false, 0, 60)); got.reason != in {
				t.Errorf("from %s: by %q, want %q", c.f.remote, got.reason, in)
			}
		}
	}
}

// The entries of a pod that is gone are deleted, and no others.
func TestGateway_DeleteShortcuts(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	entries := func(want int) {
		t.Helper()

		c, err := ReadShortcutCounts(r.pinDir)
		if err != nil || c.Entries != want {
			t.Errorf("%d entries, %v, want %d", c.Entries, err, want)
		}
	}
	open := func() {
		t.Helper()

		for _, f := range []family{v4, v6} {
			r.open(t, conn{f, protoUDP, 40000, 50000, 30})
		}

		entries(4)
	}
	open()
	r.must(t, func() error { return r.g.DeleteShortcuts([]int{r.pod + 1}) })
	entries(4)
	r.must(t, func() error { return r.g.DeleteShortcuts([]int{r.pod + 1, r.pod}) })
	entries(0)
	open()
	r.must(t, r.g.AdoptPods)
	entries(4)
	r.remove(t, "pod0") // while no agent runs
	r.must(t, r.g.AdoptPods)
	entries(0)
}

// A new pod may get the number of a deleted pod. The new pod gets none of the deleted pod's packets,
// and its counts begin at zero. A device that gets another number has shortcuts with that number.
func TestGateway_AttachPod_reusesNumbers(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	received := func(ifindex int, want uint64) {
		t.Helper()

		if packets, _, err := PodReceived(r.pinDir, ifindex); err != nil || packets != want {
			t.Errorf("interface %d: %d packets, %v, want %d", ifindex, packets, err, want)
		}
	}
	c := conn{v4, protoUDP, 40000, 50000, 30}
	r.open(t, c)

	in := c.segment(false, false, 0, 60)
	if got := r.arrive(t, in); got.reason != "snat_cached" {
		t.Fatalf("by %q", got.reason)
	}

	received(r.pod, 2) // with the last one of open
	next := r.veth(t, "pod1", net.HardwareAddr{2, 0, 0, 0, 0, 0x44}, newNamespace(t), "eth0")
	r.must(t, func() error { return errors.Join(r.g.DetachPod(r.pod), r.g.AttachPod(next, podMTU, true)) })

	if got := r.arrive(t, in); got.reason != "snat_port" {
		t.Errorf("for the former pod, by %q", got.reason)
	}

	received(next, 0)
	received(r.pod, 0)
	r.must(t, func() error { return r.g.AttachPod(r.pod, podMTU, true) })

	var pods [2]gatewayPodPort
	for i, ifindex := range []int{next, r.pod} {
		if err := r.g.objs.ShortPods.Lookup(uint32(ifindex), &pods[i]); err != nil {
			t.Fatal(err)
		}
	}

	if pods[0].Number == pods[1].Number {
		t.Errorf("two pods have number %d", pods[0].Number)
	}

	r.must(t, r.g.ForgetShortcuts) // as the end of the lease: OVS is asked again
	r.open(t, c)                   // the former entry has the former number

	if got := r.arrive(t, in); got.reason != "snat_cached" {
		t.Errorf("with another number: by %q", got.reason)
	}

	received(next, 0)
}

// A packet to an address of the host never leaves by the uplink: it holds no slot.
func TestClaimSlot_skipsHost(t *testing.T) {
	r := newShortRig(t, verdict.Direct)

	for _, f := range []family{v4, v6} {
		c := conn{f, protoUDP, 40000, 50000, 30}

		c.f.remote = f.second
		if _, number := r.fromPod(t, c.segment(true, true, 0, 64)); number != 0 {
			t.Errorf("%s: slot %d", f.name, number)
		}
	}
}

// header returns as many bytes as the family's IP header has.
func (f family) header() []byte { return f.ip(f.node, f.remote, protoUDP, nil) }

// What leaves OVS teaches nothing unless it is the packet that went in, with no other change than a
// shortcut can make.
func TestShortcut_learnsOnlyWhatItSaw(t *testing.T) {
	for _, f := range []family{v4, v6} {
		c := conn{f, protoUDP, 40000, 50000, 30}
		after := func() []byte { return c.segment(true, false, 0, 62) }

		r := newShortRig(t, verdict.Direct)
		for _, tt := range []struct {
			name   string
			number func(uint32) uint32
			frame  []byte
			before func()
			after  time.Duration // inside OVS
		}{
			{name: "no slot", number: func(uint32) uint32 { return 0 }},
			{name: "another slot", number: func(n uint32) uint32 { return n + 1 }},
			{name: "a number that is no slot", number: func(uint32) uint32 { return maxSlots + 1 }},
			{name: "TTL", frame: c.segment(true, false, 0, 55)},
			{name: "TTL raised", frame: c.segment(true, false, 0, 65)},
			{name: "length", frame: conn{f, protoUDP, 40000, 50000, 31}.segment(true, false, 0, 62)},
			{name: "TOS", frame: func() []byte { b := after(); b[15] ^= 0x10; return b }()},
			{name: "payload", frame: func() []byte { b := after(); b[14+len(f.header())+8+3] ^= 1; return b }()},
			{name: "another protocol", frame: conn{f, protoTCP, 40000, 50000, 18}.segment(true, false, 0, 62)},
			{name: "source untranslated", frame: ether(peerMAC, nodeMAC, f.etherType(), c.segment(true, true, 0, 62)[14:])},
			{name: "epoch", before: func() { r.must(t, r.g.ForgetShortcuts) }},
			{name: "too late", after: 150 * time.Millisecond},
		} {
			forgetShortcuts(t, r.g)

			for range 3 {
				_, number := r.fromPod(t, c.segment(true, true, 0, 64))
				if number == 0 {
					t.Fatalf("%s: not observed", tt.name)
				}

				if tt.number != nil {
					number = tt.number(number)
				}

				if tt.before != nil {
					tt.before()
				}

				frame := tt.frame
				if frame == nil {
					frame = after()
				}

				if tt.after > 0 {
					time.Sleep(tt.after)
					r.leaveLate(t, number, frame)
				} else {
					r.leave(t, number, frame)
				}

				if in := r.arrive(t, c.segment(false, false, 0, 60)); in.reason != "snat_port" {
					t.Errorf("%s %s: %s", f.name, tt.name, in.reason)
				}
			}

			if got, _ := r.fromPod(t, c.segment(true, true, 0, 64)); got.reason != "" {
				t.Errorf("%s %s: %s", f.name, tt.name, got.reason)
			}
		}

		forgetShortcuts(t, r.g)
		r.open(t, c)

		if got, _ := r.fromPod(t, c.segment(true, true, 0, 64)); got.reason != "out_cached" {
			t.Errorf("%s: nothing is short: %q", f.name, got.reason)
		}
	}
}

func forgetShortcuts(t *testing.T, g *Gateway) {
	t.Helper()

	if err := clearCells(g.objs.Unanswered); err != nil {
		t.Fatal(err)
	}

	var keys []gatewayShortcutKey

	if err := eachEntry(g.objs.Shortcuts, func(k gatewayShortcutKey, _ gatewayShortcut) { keys = append(keys, k) }); err != nil {
		t.Fatal(err)
	}

	for _, k := range keys {
		if err := g.objs.Shortcuts.Delete(k); err != nil {
			t.Fatal(err)
		}
	}
}

// A slot is not used again before its packet has left OVS, or could no longer be taken for it.
func TestClaimSlot_reusesNone(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	c := conn{v4, protoTCP, 40000, 50000, 30}
	frame := c.segment(true, true, 0, 64)
	inside := r.crowd(t, frame)

	time.Sleep(150 * time.Millisecond)
	r.at(t, "pod_direct", r.pod, 0, frame)

	if now, err := ReadShortcutCounts(r.pinDir); err != nil || now.Unseen != inside {
		t.Errorf("%d packets found no slot after 100 ms, %v", now.Unseen-inside, err)
	}
}

// crowd sends more packets of the pod than there are slots, and returns how many packets have found
// none so far. A machine that is busy may take longer for it than a slot lasts: then it sends again.
func (r *shortRig) crowd(t *testing.T, frame []byte) uint64 {
	t.Helper()

	for range 50 {
		r.clearSlots(t)

		before, err := ReadShortcutCounts(r.pinDir)
		if err != nil {
			t.Fatal(err)
		}

		start := time.Now()

		r.must(t, func() error {
			_, err := r.g.progs["pod_direct"].Run(&ebpf.RunOptions{Data: frame, Context: skbuff{Ifindex: uint32(r.pod)}, Repeat: maxSlotsPerCPU + 44})
			return err
		})

		took := time.Since(start)

		after, err := ReadShortcutCounts(r.pinDir)
		if err != nil {
			t.Fatal(err)
		}

		if took > 50*time.Millisecond {
			continue
		}

		if got := after.Unseen - before.Unseen; got < 44 {
			t.Fatalf("%d packets found no slot, want 44 of %d", got, maxSlotsPerCPU+44)
		}

		return after.Unseen
	}

	t.Fatal("the machine was too busy fifty times")

	return 0
}
