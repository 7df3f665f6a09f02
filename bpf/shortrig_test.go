package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var (
	podMAC    = net.HardwareAddr{0x0a, 0x58, 0x0a, 0xf4, 1, 3}
	routerMAC = net.HardwareAddr{0x0a, 0x58, 0x0a, 0xf4, 1, 1}
)

// conn is a connection of the pod. translated are its packets' addresses after OVS.
type conn struct {
	f       family
	proto   uint8
	port    uint16 // of the pod
	out     uint16 // outside, in the SNAT range or of a NodePort
	payload int
}

const podMTU = 1400

// segment returns the frame of one direction. inside: between the pod and OVS, else on the wire.
func (c conn) segment(fromPod, inside bool, flags uint8, hops byte) []byte {
	local := netip.AddrPortFrom(c.f.node, c.out)

	dst, src := peerMAC, nodeMAC
	if inside {
		local, dst, src = netip.AddrPortFrom(c.f.pod, c.port), routerMAC, podMAC
	}

	from, to := local, netip.AddrPortFrom(c.f.remote, 443)
	if !fromPod {
		from, to, dst, src = to, from, src, dst
	}

	l4 := udp(from.Port(), to.Port(), make([]byte, c.payload)...)
	if c.proto == protoTCP {
		l4 = tcp(from.Port(), to.Port(), flags, make([]byte, c.payload)...)
	}

	return ether(dst, src, c.f.etherType(), whole(c.f.ip(from.Addr(), to.Addr(), c.proto, l4), hops))
}

// whole sets the TTL or hop limit of an IP packet and all checksums.
func whole(p []byte, hops byte) []byte {
	l4, pseudo := pseudoHeader(p)
	if l4 == 20 {
		p[8] = hops
		binary.BigEndian.PutUint16(p[10:], 0)
		binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
	} else {
		p[7] = hops
	}

	at := l4 + 6
	if isTCP(p) {
		at = l4 + 16
	}

	binary.BigEndian.PutUint16(p[at:], 0)

	data := join(pseudo, p[l4:])
	if len(data)%2 == 1 {
		data = append(data, 0)
	}

	sum := checksum(data)
	if sum == 0 && !isTCP(p) {
		sum = 0xffff
	}

	binary.BigEndian.PutUint16(p[at:], sum)

	return p
}

// pseudoHeader returns what transport checksums cover besides the transport, and where that begins.
func pseudoHeader(p []byte) (l4 int, pseudo []byte) {
	if p[0]>>4 == 4 {
		return 20, join(p[12:20], []byte{0, p[9]}, be16(uint16(len(p)-20)))
	}

	return 40, join(p[8:40], be32(uint32(len(p)-40)), be32(uint32(p[6])))
}

func isTCP(p []byte) bool {
	return p[0]>>4 == 4 && p[9] == protoTCP || p[0]>>4 == 6 && p[6] == protoTCP
}

// shortRig has a pod and stands in for OVS: between its two sightings of a packet the test
// translates it.
type shortRig struct {
	*node
	g    *Gateway
	pod  int
	tags map[string]*ebpf.Program // program by hook, that sets tc_index first

	fresh   gatewaySlot // written to slot freshAt right before a run, if that is not 0
	freshAt uint32
}

func newShortRig(t *testing.T, layout verdict.Layout, change ...func(*Options)) *shortRig {
	t.Helper()
	n := newNode(t)
	// Slots and the counts of unanswered packets are those of a CPU. A thread that moves between a
	// packet's way into OVS and its way out changes which packets are observed.
	n.must(t, func() error {
		_, err := toOneCPU()
		return err
	})
	r := &shortRig{node: n, tags: make(map[string]*ebpf.Program)}
	r.pod = n.veth(t, "pod0", net.HardwareAddr{2, 0, 0, 0, 0, 0x33}, newNamespace(t), "eth0")
	c := n.config()
	c.Layout = layout
	r.g = n.open(t, append([]func(*Options){func(o *Options) {
		o.Config, o.CountServices = c, 16
		o.Shortcuts = ShortcutOptions{On: true, Lease: time.Hour, Entries: 1024}
	}}, change...)...)
	n.must(t, func() error { return r.g.AttachPod(r.pod, podMTU, true) })

	for hook, prog := range r.g.progs {
		r.tags[hook] = numbered(t, prog)
	}

	return r
}

// numbered returns a program that sets tc_index to cb[2] and continues with prog.
func numbered(t testing.TB, prog *ebpf.Program) *ebpf.Program {
	t.Helper()

	const cb, tcIndex = 48, 44 // in struct __sk_buff

	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = calls.Put(uint32(0), prog)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { calls.Close() })

	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, cb+8, asm.Word),
		asm.StoreMem(asm.R1, tcIndex, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R2, calls.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 99), // no such call
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}

	t.Cleanup(func() { p.Close() })

	return p
}

// sight is what a program did with a frame.
type sight struct {
	ret    uint32
	reason string
	out    []byte
}

// at runs a program on a frame that has a slot's number, 0 for none.
func (r *shortRig) at(t *testing.T, program string, ifindex int, number uint32, frame []byte) sight {
	t.Helper()
	before := counts(t, r.pinDir)

	var s sight

	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+256),
		Context: skbuff{Ifindex: uint32(ifindex), CB: [5]uint32{0, 0, number}},
	}

	r.must(t, func() (err error) {
		if r.freshAt != 0 {
			r.fresh.At = uint64(monotonic(t) - 20*time.Millisecond) // the programs' clock is a tick behind
			err = r.g.objs.Slots.Put(r.freshAt-1, r.fresh)
		}

		if err != nil {
			return err
		}

		s.ret, err = r.tags[program].Run(&opts)

		return err
	})

	s.out = opts.DataOut
	for reason, n := range deltas(before, counts(t, r.pinDir)) {
		if s.reason != "" || n != 1 {
			t.Errorf("%d of %s and %s have counted", n, reason, s.reason)
		}

		s.reason = reason
	}

	return s
}

// fromPod sends a frame of the pod and returns the number of its slot; 0: none.
func (r *shortRig) fromPod(t *testing.T, frame []byte) (sight, uint32) {
	t.Helper()
	r.clearSlots(t)
	s := r.at(t, r.g.opts.podProgram(), r.pod, 7, frame)

	return s, r.slot(t)
}

func (r *shortRig) slot(t *testing.T) (number uint32) {
	t.Helper()

	for i := range r.g.objs.Slots.MaxEntries() {
		var s gatewaySlot
		if err := r.g.objs.Slots.Lookup(i, &s); err != nil {
			t.Fatal(err)
		}

		if s.At > 1 {
			number = i + 1
		}
	}

	return number
}

// clearSlots ends what is inside OVS.
func (r *shortRig) clearSlots(t *testing.T) {
	t.Helper()

	for i := range r.g.objs.Slots.MaxEntries() {
		if err := r.g.objs.Slots.Put(i, gatewaySlot{}); err != nil {
			t.Fatal(err)
		}
	}
}

// leave sends a frame that OVS has sent, at once, however busy the machine is.
func (r *shortRig) leave(t *testing.T, number uint32, frame []byte) sight {
	t.Helper()

	var s gatewaySlot
	if number > 0 && number <= r.g.objs.Slots.MaxEntries() {
		if err := r.g.objs.Slots.Lookup(number-1, &s); err != nil {
			t.Fatal(err)
		}
	}

	if s.At <= 1 {
		return r.leaveLate(t, number, frame)
	}

	r.fresh, r.freshAt = s, number
	defer func() { r.freshAt = 0 }()

	return r.leaveLate(t, number, frame)
}

// leaveLate is leave without that.
func (r *shortRig) leaveLate(t *testing.T, number uint32, frame []byte) sight {
	t.Helper()

	if r.g.opts.Config.Layout == verdict.Bridged {
		return r.at(t, "bridged_uplink_out", r.uplink, number, frame)
	}

	return r.at(t, "bridge_ingress", r.bridge, number, frame)
}

// arrive sends a frame from the wire.
func (r *shortRig) arrive(t *testing.T, frame []byte) sight {
	t.Helper()
	return r.at(t, r.g.hooks()[0].program, r.uplink, 0, frame)
}

// open makes the connection's shortcuts valid.
func (r *shortRig) open(t *testing.T, c conn) {
	t.Helper()

	for range 2 {
		_, number := r.fromPod(t, c.segment(true, true, flagACK, 64))
		r.leave(t, number, c.segment(true, false, flagACK, 62))
		r.arrive(t, c.segment(false, false, flagACK, 60))
	}
}

// podAttached reports whether the pod's device has this load's program.
func (g *Gateway) podAttached(ifindex int) (bool, error) {
	h := podHookOf(ifindex, g.opts.podProgram())
	return g.attacher.isUp(h, g.programOf(h), ifindex)
}
