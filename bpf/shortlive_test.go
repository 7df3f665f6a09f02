package bpf

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const translated = 80 // bytes that the stand-in for OVS writes

// liveShort is a node with a pod on real devices. After the agent's program at the pod's device a
// program stands in for OVS: it overwrites the start of each packet and sends it up breth0.
type liveShort struct {
	*node
	g          *Gateway
	pods       *node // whose peer has the pod's end
	pod        int
	translator *ebpf.Map
	fromPod    sender
	fromWire   sender
	wire, inns *tap
}

func newLiveShort(t *testing.T) *liveShort {
	t.Helper()
	needTCX(t)
	n := quietDevices(t, vethWire)
	podNS := newNamespace(t)
	podNS.must(t, func() error { return writeSysctl("net/ipv6/conf/default/disable_ipv6", "1") })
	r := &liveShort{node: n, pods: &node{namespace: n.namespace, peer: podNS}}
	r.pod = n.veth(t, "pod0", net.HardwareAddr{2, 0, 0, 0, 0, 0x33}, podNS, "eth0")
	r.g = n.open(t, func(o *Options) {
		o.Shortcuts = ShortcutOptions{On: true, Lease: time.Hour, Entries: 1024}
		o.CountServices = 2
	})
	n.must(t, func() error {
		return errors.Join(r.g.AttachBridge(n.bridge), r.g.AttachUplink(n.uplink), r.g.AttachPod(r.pod, podMTU, true))
	})

	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: translated, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { m.Close() })

	r.translator = m
	n.attachTest(t, n.namespace, r.pod, ebpf.AttachTCXIngress, link.Tail(), translate(m, n.bridge))
	r.fromPod = packetSender(t, podNS, podNS.up(t, "eth0"))
	r.fromWire = packetSender(t, n.peer, n.peer.up(t, "wire0"))
	r.wire, r.inns = n.tap(t, "wire0"), r.pods.tap(t, "eth0")

	return r
}

// translate writes what m has over the start of a packet and sends it up the bridge.
func translate(m *ebpf.Map, bridge int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Imm(asm.R4, translated),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.Mov.Imm(asm.R1, int32(bridge)),
		asm.Mov.Imm(asm.R2, 1), // BPF_F_INGRESS
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, retDrop).WithSymbol("out"),
		asm.Return(),
	}
}

func (r *liveShort) send(t *testing.T, from sender, header [10]byte, frame []byte) {
	t.Helper()

	if err := from(header, frame); err != nil {
		t.Fatal(err)
	}
}

// open makes the connection's shortcuts valid by packets with a whole checksum.
func (r *liveShort) open(t *testing.T, c conn) {
	t.Helper()

	out, after := c.segment(true, true, flagACK, 64), c.segment(true, false, flagACK, 62)
	if err := r.translator.Put(uint32(0), after[:translated]); err != nil {
		t.Fatal(err)
	}

	before := counts(t, r.pinDir)
	r.send(t, r.fromPod, [10]byte{}, out)
	r.wire.expect(t, after)
	r.send(t, r.fromWire, [10]byte{}, c.segment(false, false, flagACK, 60))
	eventually(t, "the answer to be counted", func() bool {
		got := deltas(before, counts(t, r.pinDir))
		return got["snat_port"]+got["service"] == 1
	})
	r.send(t, r.fromPod, [10]byte{}, out)
	r.wire.expect(t, after)
}

// On real devices packets reach the wire and the pod as through OVS, and every packet and byte is
// counted once, for the pod too.
func TestShortcut_traffic(t *testing.T) {
	for _, f := range []family{v4, v6} {
		for name, c := range map[string]conn{
			"udp": {f, protoUDP, 40000, 50000, 60}, "tcp": {f, protoTCP, 40000, 50000, 60},
			"nodeport": {f, protoTCP, 8080, 30080, 60},
		} {
			t.Run(f.name+" "+name, func(t *testing.T) { testTraffic(t, newLiveShort(t), c) })
		}
	}
}

func testTraffic(t *testing.T, r *liveShort, c conn) {
	const rounds = 20

	cached := "snat_cached"
	if c.out < 49152 {
		cached = "service_cached"

		key := verdict.ServiceKey{Addr: c.f.node, Proto: protoTCP, Port: c.out}
		if err := r.g.CountServices(map[verdict.ServiceKey]ServicePort{key: {Namespace: "default", Name: "web", Port: 80}}); err != nil {
			t.Fatal(err)
		}
	}

	r.open(t, c)
	before := counts(t, r.pinDir)

	size := len(c.segment(true, true, flagACK, 64))
	for range rounds {
		r.send(t, r.fromPod, [10]byte{}, c.segment(true, true, flagACK, 64))
		r.wire.expect(t, c.segment(true, false, flagACK, 62))
		r.send(t, r.fromWire, [10]byte{}, c.segment(false, false, flagACK, 60))
		r.inns.expect(t, c.segment(false, true, flagACK, 58))
	}
	// a checksum that the device completes: the field has only the sum of the pseudo header
	for range rounds {
		r.send(t, r.fromPod, needsChecksum(c), partial(c.segment(true, true, flagACK, 64)))
		r.wire.expect(t, partial(c.segment(true, false, flagACK, 62)))
		r.send(t, r.fromWire, needsChecksum(c), partial(c.segment(false, false, flagACK, 60)))
		r.inns.expect(t, partial(c.segment(false, true, flagACK, 58)))
	}

	got := deltas(before, counts(t, r.pinDir))
	if len(got) != 2 || got["out_cached"] != 2*rounds || got[cached] != 2*rounds {
		t.Errorf("counted %v, want %d of out_cached and %s", got, 2*rounds, cached)
	}

	packets, bytes, err := PodReceived(r.pinDir, r.pod)
	if err != nil || packets != 2*rounds || bytes != uint64(2*rounds*size) {
		t.Errorf("the pod got %d packets and %d bytes, want %d and %d: %v", packets, bytes, 2*rounds, 2*rounds*size, err)
	}

	if c.proto == protoTCP {
		testSegments(t, r, c, cached)
	}
}

// testSegments sends packets that devices cut into segments. Both ends get them whole, because these
// devices leave that to the next one.
func testSegments(t *testing.T, r *liveShort, c conn, cached string) {
	t.Helper()

	const size = 40 // of a segment's payload: not longer than what has passed OVS

	long := c
	long.payload = 31*size + 7
	before := counts(t, r.pinDir)
	r.send(t, r.fromPod, gsoHeader(c.f, size), partial(long.segment(true, true, flagACK, 64)))
	r.wire.expect(t, partial(long.segment(true, false, flagACK, 62)))
	r.send(t, r.fromWire, gsoHeader(c.f, size), partial(long.segment(false, false, flagACK, 60)))
	r.inns.expect(t, partial(long.segment(false, true, flagACK, 58)))

	var got map[string]uint64

	eventually(t, "segments to be counted", func() bool {
		got = deltas(before, counts(t, r.pinDir))
		return got["out_cached"]+got["out"] == 32 && got[cached]+got["snat_port"]+got["service"] == 32
	})

	if got["out_cached"] != 32 || got[cached] != 32 {
		t.Errorf("counted %v, want 32 of out_cached and %s", got, cached)
	}
}

// A sum over a packet that its device has computed (CHECKSUM_COMPLETE) is still right after the
// translation. The kernel checks it after the run.
func TestShortcut_keepsDeviceChecksum(t *testing.T) {
	const checksumComplete = 4 // BPF_F_TEST_SKB_CHECKSUM_COMPLETE

	for _, f := range []family{v4, v6} {
		for _, c := range []conn{{f, protoUDP, 40000, 50000, 60}, {f, protoTCP, 40000, 50000, 61}, {f, protoTCP, 8080, 30080, 60}} {
			r := newShortRig(t, verdict.Direct)
			r.open(t, c)

			run := func(program string, ifindex int, frame []byte) (map[string]uint64, error) {
				before := counts(t, r.pinDir)
				opts := ebpf.RunOptions{
					Data: frame, DataOut: make([]byte, len(frame)+256), Flags: checksumComplete,
					Context: skbuff{Ifindex: uint32(ifindex)},
				}

				var err error

				r.must(t, func() error {
					_, err = r.tags[program].Run(&opts)
					return nil
				})

				return deltas(before, counts(t, r.pinDir)), err
			}

			got, err := run(r.g.opts.podProgram(), r.pod, c.segment(true, true, flagACK, 64))
			if errors.Is(err, unix.EINVAL) {
				t.Skip("the kernel cannot run a program on such a packet before Linux 6.17")
			}

			if err != nil || got["out_cached"] != 1 {
				t.Errorf("%s, protocol %d, of the pod: %v, %v", f.name, c.proto, got, err)
			}

			got, err = run(r.g.hooks()[0].program, r.uplink, c.segment(false, false, flagACK, 60))
			if err != nil || got["snat_cached"]+got["service_cached"] != 1 {
				t.Errorf("%s, protocol %d, from the wire: %v, %v", f.name, c.proto, got, err)
			}
		}
	}
}

// A frame that the pod has tagged goes to OVS, whatever shortcut its connection has: the tag would
// stay on it.
func TestShortcut_tagged(t *testing.T) {
	for _, f := range []family{v4, v6} {
		r := newLiveShort(t)
		c := conn{f, protoTCP, 40000, 50000, 60}
		r.open(t, c)
		before := counts(t, r.pinDir)
		frame := c.segment(true, true, flagACK, 64)
		r.send(t, r.fromPod, [10]byte{}, join(frame[:12], be16(0x8100), be16(7), frame[12:]))

		var got map[string]uint64

		eventually(t, "the tagged frame to be counted", func() bool {
			got = deltas(before, counts(t, r.pinDir))
			return len(got) > 0
		})

		if got["out_cached"] != 0 {
			t.Errorf("%s: counted %v", f.name, got)
		}

		r.send(t, r.fromPod, [10]byte{}, frame)
		eventually(t, "the frame without a tag to be counted", func() bool {
			return deltas(before, counts(t, r.pinDir))["out_cached"] == 1
		})
	}
}

func needsChecksum(c conn) (h [10]byte) {
	l4, check := 14+len(c.f.header()), 6
	if c.proto == protoTCP {
		check = 16
	}

	h[0] = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(h[6:], uint16(l4))
	binary.NativeEndian.PutUint16(h[8:], uint16(check))

	return h
}

// partial leaves the sum of the pseudo header alone in the checksum.
func partial(frame []byte) []byte {
	p := frame[14:]
	l4, pseudo := pseudoHeader(p)

	at := l4 + 6
	if isTCP(p) {
		at = l4 + 16
	}

	binary.BigEndian.PutUint16(p[at:], ^checksum(pseudo))

	return frame
}

// The program of a pod's device survives the agent, is replaced by the next one's, and goes with the
// pod.
func TestGateway_AttachPod(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			if !mode.clsact {
				needTCX(t)
			}

			r := newShortRig(t, verdict.Direct, func(o *Options) { o.ForceClsact = mode.clsact })
			attached := func(g *Gateway, want bool) {
				t.Helper()
				r.must(t, func() error {
					if got, err := g.podAttached(r.pod); err != nil || got != want {
						t.Errorf("attached: %t, %v, want %t", got, err, want)
					}

					return nil
				})
			}
			attached(r.g, true)
			next := r.node.open(t, func(o *Options) { o.Shortcuts, o.ForceClsact = r.g.opts.Shortcuts, mode.clsact })
			attached(next, false)
			r.must(t, next.AdoptPods)
			attached(next, true)
			r.must(t, func() error { return next.AttachPod(r.pod, podMTU, false) })
			attached(next, true)
			attached(r.g, false)

			if pods, err := next.Pods(); err != nil || len(pods) != 1 || pods[0] != r.pod {
				t.Errorf("pods %v, %v", pods, err)
			}

			if _, number := r.fromPod(t, conn{v4, protoUDP, 1, 50000, 9}.segment(true, true, 0, 64)); number != 0 {
				t.Errorf("a pod without shortcuts is observed")
			}

			r.must(t, func() error { return next.DetachPod(r.pod) })
			attached(next, false)
			r.must(t, func() error { return next.AttachPod(r.pod, podMTU, true) })
			r.remove(t, "pod0")
			r.must(t, func() error { return next.DetachPod(r.pod) })

			if pods, err := next.Pods(); err != nil || len(pods) != 0 {
				t.Errorf("pods %v, %v", pods, err)
			}
		})
	}
}
