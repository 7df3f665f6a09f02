package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

const (
	podTag    = 100 // of the connected pod
	otherTag  = 101 // of the other connected pod
	freeTag   = 102 // of the pool, without a pod
	foreign   = 200 // another VLAN of the VM
	hostPort  = 10250
	closed    = 10251
	prioFive  = 5 << 13
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
)

var (
	vmAddr    = netip.MustParseAddr("192.168.0.2")
	vmAddr6   = netip.MustParseAddr("fd00:168::2")
	podAddr   = netip.MustParseAddr("10.1.0.5")
	otherAddr = netip.MustParseAddr("10.1.0.6")
	otherMAC  = net.HardwareAddr{0x0a, 0x58, 0x0a, 1, 0, 6}
)

// nestedVM is a virtual machine with a NIC. The other end of the NIC is wire0 in its peer. Only the
// test's packets are on its devices.
type nestedVM struct {
	*node
	pods   []*node // each has the pod's namespace as its peer
	clsact bool
}

func newNestedVM(t testing.TB, clsact bool) *nestedVM {
	t.Helper()
	vm := &nestedVM{clsact: clsact, node: &node{
		namespace: quietNamespace(t), peer: quietNamespace(t), pinDir: newPinDir(t),
	}}
	vm.uplink = vm.veth(t, "eth0", nodeMAC, vm.peer, "wire0")
	vm.addr(t, "eth0", vmAddr.String()+"/24")

	return vm
}

// quietNamespace is a namespace whose devices have no IPv6, which would send packets of its own.
func quietNamespace(t testing.TB) *namespace {
	t.Helper()
	n := newNamespace(t)
	n.must(t, func() error { return writeSysctl("net/ipv6/conf/default/disable_ipv6", "1") })

	return n
}

// addPod adds the veth of a pod with this tag, but does not connect it.
func (vm *nestedVM) addPod(t testing.TB, tag int, mac net.HardwareAddr, addrs ...netip.Addr) NestedPod {
	t.Helper()
	pod := &node{namespace: vm.namespace, peer: quietNamespace(t)}
	vm.pods = append(vm.pods, pod)
	ifindex := vm.veth(t, fmt.Sprint("pod", len(vm.pods)-1), peerMAC, pod.peer, "eth0")

	l, err := pod.peer.LinkByName("eth0")
	if err == nil {
		err = pod.peer.LinkSetHardwareAddr(l, mac)
	}

	if err != nil {
		t.Fatal(err)
	}

	return NestedPod{Tag: tag, Ifindex: ifindex, MAC: mac, Addresses: addrs}
}

func (vm *nestedVM) load(t testing.TB) *Nested {
	t.Helper()

	var n *Nested

	err := vm.do(func() (err error) {
		n, err = LoadNested(NestedOptions{
			NIC: vm.uplink, PinDir: vm.pinDir, Clsact: vm.node.clsact(), ForceClsact: vm.clsact,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})

		return err
	})

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { n.Close() })

	return n
}

// nestedCount is what a counter has counted.
type nestedCount struct{ Packets, Bytes uint64 }

// nestedCounts returns the counters that are not zero.
func nestedCounts(t testing.TB, pinDir string) map[string]nestedCount {
	t.Helper()

	counters, err := ReadNestedCounters(pinDir)
	if err != nil {
		t.Fatal(err)
	}

	got := make(map[string]nestedCount)

	for _, c := range counters {
		if c.Packets != 0 || c.Bytes != 0 {
			got[c.Direction+" "+c.Reason] = nestedCount{c.Packets, c.Bytes}
		}
	}

	return got
}

// nestedDeltas returns what has been counted since before.
func nestedDeltas(t testing.TB, pinDir string, before map[string]nestedCount) map[string]nestedCount {
	t.Helper()

	got := nestedCounts(t, pinDir)
	for reason, b := range before {
		now := got[reason]
		if got[reason] = (nestedCount{now.Packets - b.Packets, now.Bytes - b.Bytes}); now == b {
			delete(got, reason)
		}
	}

	return got
}

// nestedStep is a packet with all expected results. If no reason is expected, nothing counts.
type nestedStep struct {
	from    int // interface; 0: the pod's
	proto   uint16
	tci     uint16
	frame   []byte
	ret     uint32
	reason  string
	gso     uint32 // size of segments; 0: not a GSO packet
	packets uint64 // where it is not 1
	bytes   uint64 // where it is not the frame's length
}

// nestedRig runs the programs on single frames.
type nestedRig struct {
	*nestedVM
	n          *Nested
	wire, pod  *ebpf.Program
	one, other NestedPod
}

func newNestedRig(t *testing.T) *nestedRig {
	t.Helper()
	r := &nestedRig{nestedVM: newNestedVM(t, false)}
	r.one = r.addPod(t, podTag, podMAC, podAddr)
	r.other = r.addPod(t, otherTag, otherMAC, otherAddr)
	r.n = r.load(t)
	r.wire, r.pod = tagging(t, r.n.objs.NestedFromWire), tagging(t, r.n.objs.NestedFromPod)

	r.must(t, func() error {
		return errors.Join(
			r.n.SetHost([]netip.Addr{vmAddr, vmAddr6}), r.n.SetTags([]int{podTag, otherTag, freeTag}),
			r.n.Connect(r.one), r.n.Connect(r.other),
		)
	})

	return r
}

// listen opens sockets on hostPort of the VM, for TCP and UDP.
func (r *nestedRig) listen(t *testing.T) {
	t.Helper()

	at := netip.AddrPortFrom(vmAddr, hostPort).String()

	r.must(t, func() error {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}

		t.Cleanup(func() { l.Close() })

		c, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}

		t.Cleanup(func() { c.Close() })

		return nil
	})
}

func (r *nestedRig) run(t *testing.T, prog *ebpf.Program, i int, s nestedStep) {
	t.Helper()
	before := nestedCounts(t, r.pinDir)
	opts := ebpf.RunOptions{Data: s.frame, DataOut: make([]byte, len(s.frame)+256), Context: skbuff{
		Ifindex: uint32(s.from), GSOSize: s.gso,
		CB: [5]uint32{uint32(bePort(s.proto)), uint32(s.tci)},
	}}

	var ret uint32

	r.must(t, func() (err error) {
		ret, err = prog.Run(&opts)
		return err
	})

	if ret != s.ret {
		t.Errorf("step %d: returned %d, want %d", i, int32(ret), int32(s.ret))
	}

	want := map[string]nestedCount{}
	if s.reason != "" {
		want[s.reason] = nestedCount{max(s.packets, 1), max(s.bytes, uint64(len(s.frame)))}
	}

	if diff := cmp.Diff(want, nestedDeltas(t, r.pinDir, before)); diff != "" {
		t.Errorf("step %d: counters (-want +got):\n%s", i, diff)
	}
}

func TestNestedFromWire_verdicts(t *testing.T) {
	r := newNestedRig(t)
	r.other.Limited = true
	r.must(t, func() error { return r.n.Connect(r.other) })

	frame := ether(podMAC, routerMAC, 0x0800, v4.ip(v4.remote, podAddr, protoUDP, udp(53, 4000, 'x')))
	l4 := tcp(443, 4000, flagACK, make([]byte, 1000)...)
	segments := ether(podMAC, routerMAC, 0x0800, v4.ip(v4.remote, podAddr, protoTCP, l4))
	short := ether(podMAC, routerMAC, 0x0806, []byte{0})
	gso := func(s nestedStep) nestedStep {
		s.frame, s.gso, s.packets, s.bytes = segments, 300, 4, uint64(len(segments)+3*54)
		return s
	}
	step := func(proto, tci uint16, ret uint32, reason string) nestedStep {
		return nestedStep{from: r.uplink, proto: proto, tci: tci, frame: frame, ret: ret, reason: reason}
	}
	truncated := step(etherVLAN, podTag, retRedirect, "rx in")
	truncated.frame = short

	for _, tt := range []struct {
		name string
		step nestedStep
	}{
		{"untagged", step(0, 0, retNext, "")},
		{"a pod's tag", step(etherVLAN, podTag, retRedirect, "rx in")},
		{"with a priority", step(etherVLAN, prioFive|podTag, retRedirect, "rx in")},
		{"of a limited pod", step(etherVLAN, otherTag, retRedirect, "rx in")},
		{"without a pod", step(etherVLAN, freeTag, retDrop, "rx no_pod")},
		{"foreign", step(etherVLAN, foreign, retNext, "rx foreign_vlan")},
		{"the highest tag", step(etherVLAN, 0xfff, retNext, "rx foreign_vlan")},
		{"priority alone", step(etherVLAN, prioFive, retNext, "")},
		{"802.1ad", step(etherQinQ, podTag, retNext, "")},
		{"802.1ad without a pod", step(etherQinQ, freeTag, retNext, "")},
		{"truncated", truncated},
		{"GSO", gso(step(etherVLAN, podTag, retRedirect, "rx in"))},
		{"GSO without a pod", gso(step(etherVLAN, freeTag, retDrop, "rx no_pod"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.run(t, r.wire, 0, tt.step)
		})
	}
}

// podFrame is a frame from the pod to the VM's or another address, by the router.
func podFrame(src, dst netip.Addr, proto uint8, l4 []byte) []byte {
	return ether(routerMAC, podMAC, 0x0800, v4.ip(src, dst, proto, l4))
}

// podFragment is a fragment from the pod to the VM.
func podFragment(src netip.Addr, proto uint8, id, frag uint16, payload []byte) []byte {
	h := ip4Header{src: src, dst: vmAddr, proto: proto, id: id, frag: frag}
	return ether(routerMAC, podMAC, 0x0800, ip4(h, payload))
}

func TestNestedFromPod_verdicts(t *testing.T) {
	const more, later = 0x2000, 3 // flags and offset of a fragment

	r := newNestedRig(t)
	r.listen(t)

	// Options whose bytes are the port of a socket, where the ports are without options.
	options := join(be16(hostPort), be16(hostPort))
	withOptions := func(port uint16) []byte {
		h := ip4Header{src: podAddr, dst: vmAddr, proto: protoTCP, options: options}
		return ether(routerMAC, podMAC, 0x0800, ip4(h, tcp(4000, port, flagSYN)))
	}
	ihl := func(words byte) []byte {
		frame := podFrame(podAddr, vmAddr, protoTCP, tcp(4000, hostPort, flagSYN))
		frame[14] = 0x40 | words

		return frame
	}
	toHost := podFrame(podAddr, vmAddr, protoTCP, tcp(4000, hostPort, flagSYN))
	mapped := netip.AddrFrom16(vmAddr.As16())
	segments := podFrame(podAddr, v4.remote, protoTCP, tcp(4000, 443, flagACK, make([]byte, 1000)...))

	overIP6 := func(src, dst netip.Addr) []byte {
		return ether(routerMAC, podMAC, 0x86dd, ip6(src, dst, protoTCP, tcp(4000, hostPort, flagSYN)))
	}
	nearlyPodMAC := slices.Concat(podMAC[:5], []byte{9})

	host := func(frame []byte) nestedStep {
		return nestedStep{frame: frame, ret: retNext, reason: "tx host"}
	}
	out := func(frame []byte) nestedStep {
		return nestedStep{frame: frame, ret: retRedirect, reason: "tx out"}
	}
	spoofed := func(frame []byte) nestedStep {
		return nestedStep{frame: frame, ret: retDrop, reason: "tx spoofed_source"}
	}
	tagged := func(proto, tci uint16) nestedStep {
		return nestedStep{proto: proto, tci: tci, frame: toHost, ret: retDrop, reason: "tx spoofed_vlan"}
	}
	device := func(ifindex int, proto uint16) nestedStep {
		return nestedStep{
			from: ifindex, proto: proto, tci: podTag, frame: toHost,
			ret: retDrop, reason: "tx unknown_device",
		}
	}
	inFrame := func(proto uint16) nestedStep {
		frame := join(toHost[:12], be16(proto), be16(podTag), toHost[12:])
		return nestedStep{frame: frame, ret: retDrop, reason: "tx spoofed_vlan"}
	}
	first := func(id, port uint16) []byte {
		return podFragment(podAddr, protoUDP, id, more, udp(53, port, make([]byte, 16)...))
	}
	rest := func(id, frag uint16) []byte {
		return podFragment(podAddr, protoUDP, id, frag, make([]byte, 24))
	}
	from := func(ifindex int, s nestedStep) nestedStep {
		s.from = ifindex
		return s
	}

	for _, tt := range []struct {
		name  string
		steps []nestedStep
	}{
		{"unknown device", []nestedStep{
			device(r.uplink, 0), device(r.uplink, etherVLAN),
		}},
		{"tags", []nestedStep{
			tagged(etherVLAN, podTag), tagged(etherVLAN, otherTag),
			tagged(etherVLAN, 0), tagged(etherVLAN, prioFive),
			tagged(etherQinQ, podTag), inFrame(etherVLAN), inFrame(etherQinQ),
		}},
		{"out", []nestedStep{
			out(podFrame(podAddr, v4.remote, protoUDP, udp(4000, 53))),
			out(podFrame(podAddr, v4.remote, protoTCP, tcp(4000, hostPort, flagSYN))),
			out(ether(allMAC, podMAC, 0x0806, arpPacket(1, podAddr, vmAddr))),
			out(overIP6(vmAddr6.Next(), vmAddr6)),
			out(overIP6(mapped, mapped)),
			out(ether(routerMAC, podMAC, 0x88cc, make([]byte, 40))),
		}},
		{"to the VM", []nestedStep{
			host(toHost),
			host(podFrame(podAddr, vmAddr, protoUDP, udp(4000, hostPort))),
			host(podFrame(podAddr, vmAddr, protoICMP, v4.ping(1))),
			host(podFrame(podAddr, vmAddr, protoSCTP, make([]byte, 12))),
			host(podFrame(podAddr, vmAddr, protoGRE, nil)),
		}},
		{"without a socket", []nestedStep{
			out(podFrame(podAddr, vmAddr, protoTCP, tcp(8080, closed, flagSYN|flagACK))),
			out(podFrame(podAddr, vmAddr, protoUDP, udp(53, closed))),
		}},
		{"options", []nestedStep{host(withOptions(hostPort)), out(withOptions(closed))}},
		{"malformed", []nestedStep{
			// a test run takes no shorter IPv4 header: TestNested_traffic sends one
			out(ihl(4)), out(ihl(15)), out(toHost[:34]), out(toHost[:38]), out(toHost[:41]),
		}},
		{"spoofed source", []nestedStep{
			spoofed(podFrame(otherAddr, vmAddr, protoTCP, tcp(4000, hostPort, flagSYN))),
			spoofed(podFrame(otherAddr, vmAddr, protoICMP, v4.ping(1))),
			spoofed(ether(routerMAC, otherMAC, 0x0800, toHost[14:])),
			spoofed(ether(routerMAC, nearlyPodMAC, 0x0800, toHost[14:])),
			from(r.other.Ifindex, spoofed(toHost)),
			out(podFrame(otherAddr, v4.remote, protoUDP, udp(4000, 53))),
			out(podFrame(otherAddr, vmAddr, protoTCP, tcp(4000, closed, flagSYN))),
		}},
		{"fragments to the VM", []nestedStep{
			host(first(1, hostPort)), host(rest(1, more|later)), host(rest(1, 2*later)),
		}},
		{"fragments to the wire", []nestedStep{
			out(first(2, closed)), out(rest(2, more|later)), out(rest(2, 2*later)),
			host(rest(3, later)), // another datagram's
			host(podFragment(podAddr, protoTCP, 2, later, make([]byte, 24))),
			host(first(2, hostPort)), host(rest(2, later)), // the ID is used again
		}},
		{"a later fragment first", []nestedStep{
			host(rest(4, later)), out(first(4, closed)), out(rest(4, 2*later)),
		}},
		{"fragments of ping", []nestedStep{
			host(podFragment(podAddr, protoICMP, 5, more, v4.ping(1))),
			host(podFragment(podAddr, protoICMP, 5, later, make([]byte, 24))),
		}},
		{"a spoofed first fragment does not decide", []nestedStep{
			from(r.other.Ifindex, out(first(6, closed))),
			from(r.other.Ifindex, spoofed(rest(6, later))),
			host(rest(6, later)),
		}},
		{"GSO", []nestedStep{
			{
				frame: segments, ret: retRedirect, reason: "tx out",
				gso: 300, packets: 4, bytes: uint64(len(segments) + 3*54),
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, s := range tt.steps {
				if s.from == 0 {
					s.from = r.one.Ifindex
				}

				r.run(t, r.pod, i, s)
			}
		})
	}
}

// A decision about a datagram is forgotten when the kernel would stop to reassemble it.
func TestNestedFromPod_forgetsFragments(t *testing.T) {
	r := newNestedRig(t)
	key := nestedFragKey{
		Src: nestedAddr{W: words(podAddr)}, Dst: nestedAddr{W: words(vmAddr)},
		Id: uint32(bePort(7)), Proto: protoUDP,
	}

	for _, tt := range []struct {
		age    time.Duration
		ret    uint32
		reason string
	}{{29 * time.Second, retRedirect, "tx out"}, {31 * time.Second, retNext, "tx host"}} {
		seen := nestedFragSeen{Ns: uint64(monotonic(t) - tt.age), Owner: uint8(gatewayFragOwnerFRAG_OVN)}
		if err := r.n.objs.NestedFrags.Put(key, seen); err != nil {
			t.Fatal(err)
		}

		r.run(t, r.pod, 0, nestedStep{
			from: r.one.Ifindex, frame: podFragment(podAddr, protoUDP, 7, 3, make([]byte, 24)),
			ret: tt.ret, reason: tt.reason,
		})
	}
}

// A pod without IPv4 has no source from which it may send IPv4 to the VM.
func TestNestedFromPod_wantsFamily(t *testing.T) {
	r := newNestedRig(t)
	r.one.Addresses = []netip.Addr{netip.MustParseAddr("fd00:10:1::5")}
	r.must(t, func() error { return r.n.Connect(r.one) })
	r.run(t, r.pod, 0, nestedStep{
		from: r.one.Ifindex, frame: podFrame(netip.IPv4Unspecified(), vmAddr, protoICMP, v4.ping(1)),
		ret: retDrop, reason: "tx spoofed_source",
	})
}

// Sizes of structs that the programs share with Go. The C side asserts the same.
func TestNested_sizes(t *testing.T) {
	spec, err := loadNested()
	if err != nil {
		t.Fatal(err)
	}

	want := map[string][2]uint32{
		nestedMapNestedTags: {4, 8}, nestedMapNestedDevices: {4, 32}, nestedMapNestedHost: {16, 1},
		nestedMapNestedFrags: {40, 16}, nestedMapNestedCounts: {4, 16},
	}
	for name, m := range spec.Maps {
		size, state := want[name]
		if (m.Pinning == ebpf.PinByName) != state {
			t.Errorf("map %s pinned: %t", name, !state)
		}

		if state && size != [2]uint32{m.KeySize, m.ValueSize} {
			t.Errorf("map %s: %d and %d bytes, want %v", name, m.KeySize, m.ValueSize, size)
		}
	}

	if got := spec.Maps[nestedMapNestedCounts].MaxEntries; got != uint32(len(nestedReasons)) {
		t.Errorf("%d counters in C, %d names", got, len(nestedReasons))
	}
}

func TestNested_complexity(t *testing.T) {
	limits := map[string]uint32{nestedProgNestedFromWire: 3000, nestedProgNestedFromPod: 6000}

	counts := verified(t, loadNested)
	for name, n := range counts {
		checkComplexity(t, name, n, limits[name])
	}

	if len(counts) != len(limits) {
		t.Errorf("%d programs, %d limits", len(counts), len(limits))
	}
}
