package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestGate_tables compares the gate's definitions of the gateway's tables with the gateway's.
func TestGate_tables(t *testing.T) {
	gateway, err := loadGateway()
	if err != nil {
		t.Fatal(err)
	}

	gate, err := loadGate()
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{gateMapHostSockets, gateMapHostProtos} {
		a, b := gateway.Maps[name], gate.Maps[name]
		if a.Type != b.Type || a.KeySize != b.KeySize || a.ValueSize != b.ValueSize || a.MaxEntries != b.MaxEntries || a.Flags != b.Flags {
			t.Errorf("%s is %v in the gateway, %v in the gate", name, a, b)
		}
	}
}

// gateHost is a host with a gate and without a gateway.
type gateHost struct {
	*namespace
	opts CgroupOptions
}

func newGateHost(t *testing.T) *gateHost {
	t.Helper()
	h := &gateHost{namespace: newNamespace(t), opts: CgroupOptions{PinDir: newPinDir(t), CgroupPath: testnode.Cgroup(t)}}
	h.must(t, func() (err error) {
		h.opts.NetnsCookie, err = netnsCookie()
		return err
	})
	h.addr(t, "lo", "192.0.2.1/32")
	h.addr(t, "lo", "2001:db8::1/128")

	return h
}

func (h *gateHost) open(t *testing.T) *Gate {
	t.Helper()

	g, err := LoadGate(h.opts)

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}

	if err == nil {
		t.Cleanup(func() { g.Close() })

		err = g.Attach()
	}

	if err != nil {
		t.Fatal(err)
	}

	return g
}

// bind returns a bound socket; the caller closes it.
func bind(t *testing.T, n *namespace, typ int, to string) int {
	t.Helper()

	at := netip.MustParseAddrPort(to)

	c, domain := &client{}, unix.AF_INET
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	}

	fd := -1

	n.must(t, func() (err error) {
		if fd, err = unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}

		return unix.Bind(fd, c.sockaddr(at))
	})

	return fd
}

// openPorts returns the ports for which the gate is open.
func openPorts(t *testing.T, g *Gate) (keys []SocketKey) {
	t.Helper()

	var bits gatePortBits
	if err := g.objs.HostSockets.Lookup(uint32(0), &bits); err != nil {
		t.Fatal(err)
	}

	for p := range 65536 {
		if bits.Tcp[p/64]>>(p%64)&1 == 1 {
			keys = append(keys, SocketKey{protoTCP, uint16(p)})
		}

		if bits.Udp[p/64]>>(p%64)&1 == 1 {
			keys = append(keys, SocketKey{protoUDP, uint16(p)})
		}
	}

	return keys
}

func wantOpen(t *testing.T, g *Gate, when string, want ...SocketKey) {
	t.Helper()

	if got := openPorts(t, g); !slices.Equal(got, want) {
		t.Errorf("%s: open for %v, want %v", when, got, want)
	}
}

func sync1(t *testing.T, g *Gate, seen ...SocketKey) {
	t.Helper()

	if err := g.Sync(func() ([]SocketKey, error) { return seen, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestGate(t *testing.T) {
	h := newGateHost(t)
	g := h.open(t)
	wantOpen(t, g, "at first")

	for _, b := range []struct {
		typ int
		at  string
	}{
		{unix.SOCK_STREAM, "192.0.2.1:50001"},
		{unix.SOCK_DGRAM, "0.0.0.0:50002"},
		{unix.SOCK_STREAM, "[::]:50003"},
		{unix.SOCK_DGRAM, "[2001:db8::1]:65535"},
		{unix.SOCK_STREAM, "127.0.0.1:50004"}, // nothing from outside gets there
	} {
		fd := bind(t, h.namespace, b.typ, b.at)
		defer unix.Close(fd)
	}

	all := []SocketKey{{protoTCP, 50001}, {protoUDP, 50002}, {protoTCP, 50003}, {protoUDP, 65535}}
	wantOpen(t, g, "after bind", all...)

	other := newNamespace(t)

	fd := bind(t, other, unix.SOCK_STREAM, "0.0.0.0:50005")
	defer unix.Close(fd)

	wantOpen(t, g, "another namespace's", all...)

	t.Log("what was just bound stays, seen or not; after that only what is seen")
	sync1(t, g, SocketKey{protoTCP, 50001}, SocketKey{protoTCP, 60000})
	wantOpen(t, g, "first scan", append(all[:3:3], SocketKey{protoTCP, 60000}, all[3])...)
	sync1(t, g, SocketKey{protoTCP, 50001})
	wantOpen(t, g, "second scan", all[0])
	sync1(t, g)
	wantOpen(t, g, "third scan")

	failed := errors.New("no netlink")
	if err := g.Sync(func() ([]SocketKey, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("sync with a failing scan: %v", err)
	}
}

// TestGate_connects checks a TCP socket that is bound and idle for long, so that no scan lists it.
// When it connects, the gate is open again before its first packet.
func TestGate_connects(t *testing.T) {
	h := newGateHost(t)

	g := h.open(t)
	for _, b := range []struct {
		at, to string
		want   []SocketKey
	}{
		{"192.0.2.1:50001", "192.0.2.1:1", []SocketKey{{protoTCP, 50001}}},
		{"[2001:db8::1]:50001", "[2001:db8::1]:1", []SocketKey{{protoTCP, 50001}}},
		{"127.0.0.1:50001", "127.0.0.1:1", nil}, // nothing from outside gets there
	} {
		fd := bind(t, h.namespace, unix.SOCK_STREAM, b.at)
		sync1(t, g)
		sync1(t, g)
		wantOpen(t, g, "bound long ago to "+b.at)
		h.must(t, func() error {
			err := unix.Connect(fd, (&client{}).sockaddr(netip.MustParseAddrPort(b.to)))
			if !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("connect to a closed port: %w", err)
			}

			return unix.Close(fd)
		})
		wantOpen(t, g, "connected from "+b.at, b.want...)
		sync1(t, g)
		sync1(t, g)
	}
}

func TestGate_restart(t *testing.T) {
	h := newGateHost(t)
	g := h.open(t)

	fd := bind(t, h.namespace, unix.SOCK_STREAM, "192.0.2.1:50001")
	defer unix.Close(fd)

	if err := g.Close(); err != nil {
		t.Fatal(err)
	}

	fd = bind(t, h.namespace, unix.SOCK_STREAM, "192.0.2.1:50002")
	defer unix.Close(fd)

	g = h.open(t)
	wantOpen(t, g, "after a restart", SocketKey{protoTCP, 50001}, SocketKey{protoTCP, 50002})

	fd = bind(t, h.namespace, unix.SOCK_STREAM, "192.0.2.1:50003")
	defer unix.Close(fd)

	sync1(t, g, SocketKey{protoTCP, 50001})

	if got := openPorts(t, g); !slices.Contains(got, SocketKey{protoTCP, 50003}) {
		t.Errorf("bound after the restart, not yet seen: open for %v", got)
	}

	if ok, err := g.Attached(); !ok || err != nil {
		t.Errorf("attached: %t, %v", ok, err)
	}

	if err := g.Detach(); err != nil {
		t.Fatal(err)
	}

	before := openPorts(t, g)

	fd = bind(t, h.namespace, unix.SOCK_STREAM, "192.0.2.1:50004")
	defer unix.Close(fd)

	wantOpen(t, g, "after Detach", before...)
}

// TestGate_losesNothing binds sockets during Syncs with scans that list none of them. After each
// Sync, the gate is open for all sockets that were just bound.
func TestGate_losesNothing(t *testing.T) {
	h := newGateHost(t)
	g := h.open(t)

	var (
		stop  atomic.Bool
		binds atomic.Uint64
	)

	done := make(chan error)
	go func() {
		done <- h.do(func() error {
			for port := 50000; !stop.Load(); port = 50000 + (port+1)%10000 {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}

				err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: port})
				if err := errors.Join(err, unix.Close(fd)); err != nil {
					return err
				}

				binds.Add(1)
			}

			return nil
		})
	}()

	for range 300 {
		sync1(t, g)

		recent, err := g.recent()
		if err != nil {
			t.Fatal(err)
		}
		// The hook may be between its two writes: wait until that bind returns.
		for n := binds.Load(); binds.Load() == n; {
			runtime.Gosched()
		}

		var bits gatePortBits
		if err := g.objs.HostSockets.Lookup(uint32(0), &bits); err != nil {
			t.Fatal(err)
		}

		if union(bits, recent) != bits {
			t.Fatal("the gate is closed for a socket just bound")
		}
	}

	stop.Store(true)

	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestGate_raw checks that the protocol of a raw host socket belongs to the host once the socket
// exists. Sockets of other namespaces do not count, nor protocols with ports or identifiers.
func TestGate_raw(t *testing.T) {
	h := newGateHost(t)
	g := h.open(t)
	raw := func(n *namespace, domain, proto int) {
		t.Helper()

		var fd int

		n.must(t, func() (err error) {
			fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
			return err
		})
		t.Cleanup(func() { unix.Close(fd) })
	}
	claimed := func() map[verdict.NSKey]bool {
		t.Helper()

		got := make(map[verdict.NSKey]bool)

		err := eachEntry(g.objs.HostProtos, func(k gateNsKey, _ uint8) { got[verdict.NSKey{Remote: addrOf(k.Remote.W), Proto: k.Proto}] = true })
		if err != nil {
			t.Fatal(err)
		}

		return got
	}
	other := newNamespace(t)
	want := make(map[verdict.NSKey]bool)

	for proto := 1; proto < 256; proto++ {
		raw(other, unix.AF_INET, proto)

		if got := claimed(); got[verdict.NSKey{Remote: netip.IPv4Unspecified(), Proto: uint8(proto)}] {
			t.Errorf("protocol %d: another namespace's", proto)
		}

		raw(h.namespace, unix.AF_INET, proto)
		raw(h.namespace, unix.AF_INET6, proto)

		if !slices.Contains([]int{1, protoTCP, protoUDP, 58, protoSCTP}, proto) {
			want[verdict.NSKey{Remote: netip.IPv4Unspecified(), Proto: uint8(proto)}] = true
			want[verdict.NSKey{Remote: netip.IPv6Unspecified(), Proto: uint8(proto)}] = true
		}
	}

	if got := claimed(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
