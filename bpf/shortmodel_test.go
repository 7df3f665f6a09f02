package bpf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// shortModel runs programs and model side by side over random entries.
type shortModel struct {
	*shortRig
	rng   *rand.Rand
	model verdict.Model
	conns []conn
	seen  map[string]int
}

// Programs and model decide random packets with random entries alike: reason, frame, and what
// becomes of the entries.
func TestShortcut_agreesWithModel(t *testing.T) {
	seed, frames := randomtest.Seed(t, seedEnv), envUint(t, framesEnv, defaultFrames)/5
	if testing.Short() {
		frames /= 3
	}

	t.Logf("%d frames", frames)

	for _, layout := range shortLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			m := &shortModel{shortRig: newShortRig(t, layout), rng: rand.New(rand.NewPCG(seed, 0)), seen: make(map[string]int)}
			openGate(t, m.g, SocketKey{protoUDP, 50001})

			for i := range frames {
				if i%50 == 0 {
					m.compare(t)
					m.next(t)
				}

				m.frame(t)
			}

			m.compare(t)

			for _, reason := range []string{"snat_cached", "service_cached", "out_cached", "snat_port", "service", ""} {
				if m.seen[reason] == 0 {
					t.Errorf("no packet was decided by %q: %v", reason, m.seen)
				}
			}

			t.Logf("decided by %v", m.seen)
		})
	}
}

func pick[T any](m *shortModel, of ...T) T { return of[m.rng.IntN(len(of))] }

func (m *shortModel) config() *verdict.Config {
	c := m.g.opts.Config.Model()
	c.Connected = true

	return c
}

// next replaces all entries.
func (m *shortModel) next(t *testing.T) {
	t.Helper()
	forgetShortcuts(t, m.g)
	forget(t, m.g) // damaged packets may be fragments

	// 443 is the port of every connection outside: then all their datagrams are tunnel packets.
	m.g.opts.Config.GenevePort = pick[uint16](m, 6081, 6081, 443)
	m.must(t, func() error { return m.g.SetConfig(m.g.opts.Config) })

	if m.rng.IntN(4) == 0 {
		m.must(t, m.g.ForgetShortcuts)
	}

	counts, err := ReadShortcutCounts(m.pinDir)
	if err != nil {
		t.Fatal(err)
	}

	tables := &verdict.Tables{
		NS: map[verdict.NSKey]time.Duration{}, Frags: map[verdict.FragKey]verdict.Fragmented{}, Flows: map[verdict.FlowKey]time.Duration{},
		Addrs: map[netip.Addr]verdict.AddrKind{}, Services: map[verdict.ServiceKey]verdict.ServiceOwner{},
		Past: verdict.Past{
			Shortcuts: map[verdict.Tuple]verdict.Shortcut{}, Epoch: counts.Epoch, Pods: map[int]bool{m.pod: true},
			HostPort: func(_ uint8, port uint16) bool { return port == 50001 },
		},
	}
	for _, a := range []netip.Addr{v4.node, v4.second, v6.node, v6.second, encap} { // as open has them
		tables.Addrs[a] = verdict.AddrHost
	}

	for _, f := range []family{v4, v6} {
		tables.Services[verdict.ServiceKey{Addr: f.vip, Proto: protoTCP, Port: 443}] = verdict.ServiceOVN
		tables.Services[verdict.ServiceKey{Addr: f.second, Proto: protoTCP, Port: 30081}] = verdict.ServiceOVN
		tables.Services[verdict.ServiceKey{Addr: f.node, Proto: protoTCP, Port: 30080}] = verdict.ServiceOVN
		tables.Services[verdict.ServiceKey{Addr: f.node, Proto: protoUDP, Port: 30053}] = verdict.ServiceOVN
	}

	m.model = verdict.Model{Config: m.config(), Tables: tables}
	m.conns = nil
	now := monotonic(t)
	m.sure(t, now)

	for range 8 {
		c := conn{pick(m, v4, v6), pick[uint8](m, protoTCP, protoUDP), uint16(m.rng.IntN(65535) + 1), pick[uint16](m, 50000, 50001, 50002, 65535, 30080, 30053, 22), pick(m, 20, 21, 100, 1000)}
		m.conns = append(m.conns, c)
		m.add(t, c, true, now)
		m.add(t, c, false, now)
	}
}

// sure sends packets that need no luck to be decided by every reason that the test asks for:
// of a pod's own connection and of one to a NodePort, in one family with usable entries and in the
// other with none.
func (m *shortModel) sure(t *testing.T, now time.Duration) {
	t.Helper()

	with := m.rng.IntN(2)

	for _, out := range []uint16{50100, 30080} {
		for i, f := range []family{v4, v6} {
			c := conn{f, protoTCP, 100, out, 20}

			for _, fromPod := range []bool{true, false} {
				if i == with {
					k, s := m.usable(c, fromPod, now)
					m.put(t, k, s)
				}

				m.send(t, c.segment(fromPod, fromPod, flagACK, 64), fromPod)
			}
		}
	}
}

// usable returns an entry of one direction that passes every test before use.
func (m *shortModel) usable(c conn, fromPod bool, now time.Duration) (verdict.Tuple, verdict.Shortcut) {
	before, after := verdict.Parse(c.segment(fromPod, fromPod, flagACK, 64)), verdict.Parse(c.segment(fromPod, !fromPod, flagACK, 64))

	return verdict.Tuple{FromWire: !fromPod, Proto: c.proto, Src: before.Segment.Src, Dst: before.Segment.Dst}, verdict.Shortcut{
		Until: now + time.Hour, Epoch: m.model.Tables.Epoch, Device: m.pod,
		Src: after.Segment.Src, Dst: after.Segment.Dst, DstMAC: after.Dst, SrcMAC: after.Src, From: before.Src,
		Longest: 1500, Hops: 2,
	}
}

// add adds a random entry of one direction.
func (m *shortModel) add(t *testing.T, c conn, fromPod bool, now time.Duration) {
	t.Helper()

	if m.rng.IntN(6) == 0 {
		return
	}

	k, s := m.usable(c, fromPod, now)
	length := verdict.Parse(c.segment(fromPod, fromPod, flagACK, 64)).Segment.Length
	s.Until = pick(m, s.Until, s.Until, s.Until, now-time.Second, 0)
	s.Device = pick(m, m.pod, m.pod, m.pod, m.pod, m.uplink, 99)
	s.From = pick(m, s.From, s.From, s.From, verdict.MAC(peerMAC))
	s.Longest = pick(m, 1500, 1500, 120, length, length-1)
	s.Hops = pick[uint8](m, 0, 1, 2, 2, 5)

	s.Seen = m.rng.IntN(2) == 0
	if m.rng.IntN(8) == 0 {
		s.Epoch--
	}

	m.put(t, k, s)
}

// put writes an entry into the model and into the programs' map.
func (m *shortModel) put(t *testing.T, k verdict.Tuple, s verdict.Shortcut) {
	t.Helper()

	m.model.Tables.Shortcuts[k] = s

	key, value := cellsOf(k, s, m.model.Tables.Epoch)
	if err := m.g.objs.Shortcuts.Put(key, value); err != nil {
		t.Fatal(err)
	}
}

// cellsOf returns the programs' entry. The differences are computed here once more.
func cellsOf(k verdict.Tuple, s verdict.Shortcut, epoch uint32) (gatewayShortcutKey, gatewayShortcut) {
	key := gatewayShortcutKey{
		Src: keyAddr(k.Src.Addr()), Dst: keyAddr(k.Dst.Addr()),
		Sport: bePort(k.Src.Port()), Dport: bePort(k.Dst.Port()), Proto: k.Proto,
	}
	if k.Src.Addr().Is6() {
		key.V6 = 1
	}

	if k.FromWire {
		key.Origin = uint8(gatewayOriginORIGIN_WIRE)
	}

	v := gatewayShortcut{
		Until: uint64(s.Until), Epoch: s.Epoch, Device: uint32(s.Device),
		Src: gatewayAddr{W: words(s.Src.Addr())}, Dst: gatewayAddr{W: words(s.Dst.Addr())},
		WasSrc: gatewayAddr{W: words(k.Src.Addr())}, WasDst: gatewayAddr{W: words(k.Dst.Addr())},
		Sport: bePort(s.Src.Port()), Dport: bePort(s.Dst.Port()), From: s.From, Longest: uint16(s.Longest), Hops: s.Hops,
	}
	copy(v.Macs[:], s.DstMAC[:])
	copy(v.Macs[6:], s.SrcMAC[:])

	if s.Seen {
		v.Seen = seenIn(epoch)
	}

	var addrs, ports uint64

	sum := func(to *uint64, old, now []byte) {
		for i := 0; i < len(old); i += 2 {
			*to += uint64(^binary.NativeEndian.Uint16(old[i:])) + uint64(binary.NativeEndian.Uint16(now[i:]))
		}
	}
	sum(&addrs, k.Src.Addr().AsSlice(), s.Src.Addr().AsSlice())
	sum(&addrs, k.Dst.Addr().AsSlice(), s.Dst.Addr().AsSlice())
	sum(&ports, be16(k.Src.Port()), be16(s.Src.Port()))
	sum(&ports, be16(k.Dst.Port()), be16(s.Dst.Port()))

	hops := be16(uint16(s.Hops) << 8)
	if k.Src.Addr().Is6() {
		hops = be16(uint16(s.Hops))
	}

	all := addrs
	sum(&all, hops, []byte{0, 0})

	v.AddrDiff, v.PortDiff, v.IpDiff = uint32(folded(addrs)), uint32(folded(ports)), folded(all)
	if k.Src.Port() == s.Src.Port() && k.Dst.Port() == s.Dst.Port() {
		v.PortDiff = 0
	}

	return key, v
}

// keyAddr is what key_of in short.h makes of an address.
func keyAddr(a netip.Addr) uint32 {
	w := words(a)
	if a.Is4() {
		return w[3]
	}

	return (w[0]^w[1])*0x9e3779b1 + w[2]*0x85ebca6b + w[3]
}

// seenIn is seen_in in short.h.
func seenIn(epoch uint32) uint8 { return 0x80 | uint8(epoch)&0x7f }

func folded(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	return uint16(sum)
}

// frame sends one packet of a connection through both, sometimes a damaged one.
func (m *shortModel) frame(t *testing.T) {
	t.Helper()

	c, fromPod := m.conns[m.rng.IntN(len(m.conns))], m.rng.IntN(2) == 0
	flags := pick[uint8](m, flagACK, flagACK, flagACK, flagACK, flagACK|flagFIN, flagRST, flagSYN, flagSYN|flagACK)

	frame := c.segment(fromPod, fromPod, flags, pick[byte](m, 64, 64, 64, 3, 2, 1, 0))
	switch m.rng.IntN(8) {
	case 0:
		frame[14+m.rng.IntN(len(frame)-14)] ^= 1 << m.rng.IntN(8)
	case 1:
		frame = append(frame, make([]byte, m.rng.IntN(8))...)
	case 2:
		frame = frame[:len(frame)-m.rng.IntN(4)]
	}

	m.send(t, frame, fromPod)
}

// send sends a frame through both.
func (m *shortModel) send(t *testing.T, frame []byte, fromPod bool) {
	t.Helper()

	before, now := verdict.Parse(frame), monotonic(t)
	if !fromPod {
		d := m.model.Decide(verdict.FromWire, before, now)
		m.check(t, "wire", m.arrive(t, frame), d, d.Reason.String(), frame)

		return
	}

	d, ok := m.model.FromPod(m.pod, before, now)

	reason := ""
	if ok {
		reason = d.Reason.String()
	}

	got := m.at(t, m.g.opts.podProgram(), m.pod, 0, frame)
	m.check(t, "pod", got, d, reason, frame)
}

func (m *shortModel) check(t *testing.T, from string, got sight, d verdict.Decision, reason string, frame []byte) {
	t.Helper()

	want := frame
	if d.Past != nil {
		want = d.Past.Rewrite(frame)
	}

	m.model.Tables.Apply(d, monotonic(t))

	m.seen[reason]++
	if m.g.opts.Config.Layout == verdict.Bridged && d.Past == nil { // to the host: the frame has the bridge's MAC
		want = append(append([]byte(nil), got.out[:12]...), frame[12:]...)
	}

	if got.reason != reason || !bytes.Equal(got.out, want) {
		t.Fatalf("%s: by %q, the model says %q\nframe %x\n got  %x\n want %x\n%+v", from, got.reason, reason, frame, got.out, want, d.Past)
	}
}

// compare compares what packets have changed in entries.
func (m *shortModel) compare(t *testing.T) {
	t.Helper()

	type state struct {
		Ended, Seen bool
	}

	want, got := map[verdict.Tuple]state{}, map[verdict.Tuple]state{}

	if m.model.Tables == nil {
		return
	}

	for k, s := range m.model.Tables.Shortcuts {
		want[k] = state{s.Until == 0, s.Seen && k.FromWire}
	}

	err := eachEntry(m.g.objs.Shortcuts, func(k gatewayShortcutKey, s gatewayShortcut) {
		key := verdict.Tuple{FromWire: k.Origin == 1, Proto: k.Proto, Src: addrPort(s.WasSrc.W, k.Sport), Dst: addrPort(s.WasDst.W, k.Dport)}
		got[key] = state{s.Until == 0, key.FromWire && s.Seen == seenIn(m.model.Tables.Epoch)}
	})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(verdict.Tuple{})); diff != "" {
		t.Fatalf("entries (-model +program):\n%s", diff)
	}
}
