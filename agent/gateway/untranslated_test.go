package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// manyBridge is a bridge that tracks every UDP datagram in zone 7.
const manyBridge = "brmany"

// trackingBridge adds manyBridge and returns its device.
func trackingBridge(t *testing.T, sw *testnode.Switch) *net.Interface {
	t.Helper()
	sw.Vsctl(t, "add-br", manyBridge, "--", "set", "Bridge", manyBridge, "datapath_type=netdev", "--", "set-fail-mode", manyBridge, "secure")
	testnode.Eventually(t, "the bridge's device", func() error {
		_, err := net.InterfaceByName(manyBridge)
		return err
	})
	testnode.Run(t, "ip", "link", "set", manyBridge, "up")
	testnode.Run(t, "ovs-ofctl", "add-flow", "unix:"+sw.Dir+"/"+manyBridge+".mgmt", "udp,actions=ct(commit,zone=7)")

	dev, err := net.InterfaceByName(manyBridge)
	if err != nil {
		t.Fatal(err)
	}

	return dev
}

// sendDatagrams sends a datagram from each source to the destination of the same index.
func sendDatagrams(t *testing.T, dev *net.Interface, src, dst []netip.AddrPort) {
	t.Helper()

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)

	for i := range src {
		if err := unix.Sendto(fd, datagram(src[i], dst[i]), 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
			t.Fatal(err)
		}

		if i%100 == 99 { // the device has a queue of 500 packets
			time.Sleep(500 * time.Microsecond)
		}
	}
}

// datagram returns an empty datagram over Ethernet and IPv4.
func datagram(src, dst netip.AddrPort) []byte {
	f := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
	f = append(append(f, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)

	var sum uint32
	for i := 14; i < len(f); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}

	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum+sum>>16))
	f = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(f, src.Port()), dst.Port())

	return append(f, 0, 8, 0, 0)
}

// TestUntranslated_atScale adds 1,000 frontends, one after another, beside many connections. There
// is at most one dump in a second. Connections to the frontends are deleted, the others stay.
func TestUntranslated_atScale(t *testing.T) {
	connections, fronts := 100_000, 1_000
	if testing.Short() {
		connections = 10_000
	}

	sw := testnode.StartSwitch(t, true)
	sw.Daemon(t)
	dev := trackingBridge(t, sw)

	// One connection in 20 is to a frontend, one in 20 to another port of its address.
	var src, dst []netip.AddrPort

	for i := range connections {
		n := i / 20 % fronts
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), 53)

		switch i % 20 {
		case 0:
		case 1:
			to = netip.AddrPortFrom(to.Addr(), 54)
		default:
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 53)
		}

		src = append(src, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 15), 3}), 1+uint16(i&0x7fff)))
		dst = append(dst, to)
	}

	frontend := func(i int) ovs.VIP {
		return ovs.VIP{Proto: unix.IPPROTO_UDP, At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 53)}
	}
	to := func() (frontends, others int) {
		list, err := ovs.Conntrack(t.Context(), sw.Dir)
		if err != nil {
			t.Fatal(err)
		}

		for _, c := range list {
			if d := c.Original.Dst; d.Port() == 53 && d.Addr().As4()[0] == 10 {
				frontends++
			} else {
				others++
			}
		}

		return frontends, others
	}

	var doomed, stay int

	testnode.Eventually(t, "connections", func() error { // some datagrams may be lost
		sendDatagrams(t, dev, src, dst)

		if doomed, stay = to(); doomed+stay < connections {
			return fmt.Errorf("%d so far", doomed+stay)
		}

		return nil
	})

	p := parts{s: Settings{Wiring: Wiring{Datapath: ovs.DatapathNetdev}, OVSRunDir: sw.Dir}, log: slog.New(slog.DiscardHandler), record: newRecorder(slog.New(slog.DiscardHandler))}
	p.tracker = &tracker{s: p.s, log: p.log, record: p.record}
	u := newUntranslated(p)

	var dumped atomic.Int64

	read := u.read
	u.read = func(ctx context.Context) *dump {
		dumped.Add(1)
		return read(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())

	began, ended := time.Now(), make(chan error)
	go func() { ended <- u.runLooks(ctx) }() // without br-int

	for i := range fronts {
		u.add(frontend(i))
		time.Sleep(3 * time.Millisecond)
	}

	var left, others int

	testnode.Eventually(t, "no connection to a frontend is left", func() error {
		if left, others = to(); left > 0 {
			return fmt.Errorf("%d connections", left)
		}

		return nil
	})

	took, dumps := time.Since(began), int(dumped.Load())

	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	t.Logf("%d of %d connections deleted in %v with %d dumps", doomed, doomed+stay, took.Round(time.Millisecond), dumps)

	if dumps == 0 || dumps > 1+int(took/lookPause) {
		t.Errorf("%d dumps in %v", dumps, took)
	}

	if others != stay {
		t.Errorf("%d other connections, want %d", others, stay)
	}

	if fault := p.record.read().Degraded[partUntranslated]; fault != "" {
		t.Error(fault)
	}
}

func TestUntranslatedTo(t *testing.T) {
	ap := netip.MustParseAddrPort
	frontends := map[ovs.VIP]deletionProgress{{Proto: unix.IPPROTO_UDP, At: ap("10.96.0.9:53")}: {}, {Proto: unix.IPPROTO_TCP, At: ap("10.96.0.9:53")}: {}, {Proto: unix.IPPROTO_UDP, At: ap("[fd00::9]:53")}: {}}
	tracked := func(proto uint8, dst, replySrc string) ovs.TrackedConnection {
		client := netip.MustParseAddrPort("10.244.0.3:1000")

		return ovs.TrackedConnection{
			Proto: proto, Zone: 7,
			Original: ovs.Tuple{Src: client, Dst: netip.MustParseAddrPort(dst)},
			Reply:    ovs.Tuple{Src: netip.MustParseAddrPort(replySrc), Dst: netip.MustParseAddrPort("172.30.0.11:50000")},
		}
	}
	opening := tracked(unix.IPPROTO_TCP, "10.96.0.9:53", "10.96.0.9:53")
	opening.Opening = true
	answered := tracked(unix.IPPROTO_TCP, "10.96.0.9:53", "10.244.0.4:5353")

	answered.Opening = true
	for _, tt := range []struct {
		name string
		in   ovs.TrackedConnection
		want bool
	}{
		{"UDP", tracked(unix.IPPROTO_UDP, "10.96.0.9:53", "10.96.0.9:53"), true},
		{"UDP over IPv6", tracked(unix.IPPROTO_UDP, "[fd00::9]:53", "[fd00::9]:53"), true},
		{"TCP without an answer", opening, true},
		{"UDP, translated", tracked(unix.IPPROTO_UDP, "10.96.0.9:53", "10.244.0.4:5353"), false},
		{"UDP, another port", tracked(unix.IPPROTO_UDP, "10.96.0.9:54", "10.96.0.9:54"), false},
		{"UDP, another address", tracked(unix.IPPROTO_UDP, "10.96.0.8:53", "10.96.0.8:53"), false},
		{"TCP, established", tracked(unix.IPPROTO_TCP, "10.96.0.9:53", "10.96.0.9:53"), false},
		{"TCP without an answer, translated", answered, false},
		{"SCTP", tracked(unix.IPPROTO_SCTP, "10.96.0.9:53", "10.96.0.9:53"), false},
		{"UDP, from a server at the frontend", ovs.TrackedConnection{
			Proto:    unix.IPPROTO_UDP,
			Original: ovs.Tuple{Src: netip.MustParseAddrPort("10.96.0.9:53"), Dst: netip.MustParseAddrPort("10.244.0.3:1000")},
			Reply:    ovs.Tuple{Src: netip.MustParseAddrPort("10.244.0.3:1000"), Dst: netip.MustParseAddrPort("10.96.0.9:53")},
		}, false},
	} {
		if got := untranslatedTo([]ovs.TrackedConnection{tt.in}, frontends); slices.Contains(got, tt.in) != tt.want {
			t.Errorf("%s: found %v, want %t", tt.name, got, tt.want)
		}
	}
}

// TestUntranslated_looksAgain: each frontend has its own looks, with pauses that become longer.
func TestUntranslated_looksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &untranslated{added: loop.NewSignal(), frontends: map[ovs.VIP]deletionProgress{}}
		first := ovs.VIP{Proto: unix.IPPROTO_UDP, At: netip.MustParseAddrPort("10.96.0.9:53")}
		second := ovs.VIP{Proto: unix.IPPROTO_TCP, At: netip.MustParseAddrPort("10.96.0.9:53")}

		begin, added := time.Now(), false

		u.add(first)

		var at []time.Duration

		for next := u.nextLook(); !next.IsZero(); next = u.nextLook() {
			if !added && next.Sub(begin) > 3*time.Second {
				time.Sleep(time.Until(begin.Add(3 * time.Second)))

				added = true

				u.add(second)

				continue
			}

			time.Sleep(time.Until(next))
			u.countLook(maps.Clone(u.frontends))

			at = append(at, time.Since(begin))
		}

		// The first frontend has looks at 0.25, 1.25, 2.25, 4.25, 8.25 and 16.25 s. The second one has the
		// same 3 s later.
		var want []time.Duration
		for _, ms := range []int{250, 1250, 2250, 3250, 4250, 5250, 7250, 8250, 11250, 16250, 19250} {
			want = append(want, time.Duration(ms)*time.Millisecond)
		}

		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
	})
}
