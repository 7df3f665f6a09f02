package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// udpTo returns a UDP socket connected to peer. mapped means over IPv6 to an IPv4 address.
func udpTo(t *testing.T, peer netip.AddrPort, mapped bool) int {
	t.Helper()

	domain := unix.AF_INET

	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: peer.Addr().As16(), Port: int(peer.Port())}
	if mapped || peer.Addr().Is6() {
		domain = unix.AF_INET6
	} else {
		sa = &unix.SockaddrInet4{Addr: peer.Addr().As4(), Port: int(peer.Port())}
	}

	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	if err := unix.Connect(fd, sa); err != nil {
		t.Fatalf("connect to %v: %v", peer, err)
	}

	return fd
}

// frontendsOf attaches the programs for the host's sockets, with a frontend for each address.
func frontendsOf(t *testing.T, backends map[string]string) *bpf.Sock {
	t.Helper()
	pins := filepath.Join(t.TempDir(), "bpf", "node")
	t.Cleanup(func() { _ = unix.Unmount(filepath.Dir(pins), 0) })

	sock, err := bpf.OpenSock(bpf.CgroupOptions{PinDir: pins, CgroupPath: testnode.Cgroup(t)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := errors.Join(sock.Detach(), sock.Close()); err != nil {
			t.Error(err)
		}
	})

	var services []bpf.SockService
	for front, back := range backends {
		services = append(services, bpf.SockService{Key: front, Ports: []bpf.SockPort{{
			Proto: unix.IPPROTO_UDP, Frontends: []netip.AddrPort{netip.MustParseAddrPort(front)}, Backends: []netip.AddrPort{netip.MustParseAddrPort(back)},
		}}})
	}

	if _, err := sock.SyncServices(services); err != nil {
		t.Fatal(err)
	}

	if err := sock.Attach(); err != nil {
		t.Fatal(err)
	}

	return sock
}

// TestDestroyUDPKeepsUnrelatedSockets checks that only sockets end that a frontend connected to a
// removed endpoint. A tenant chooses the endpoints, so a socket that the host itself connected to
// one of them, such as that of an NTP client, must stay.
func TestDestroyUDPKeepsUnrelatedSockets(t *testing.T) {
	veth(t, "tst0")

	if err := errors.Join(SetUp("tst0"), SyncAddresses("tst0", prefixes("10.9.0.2/24", "fd09::2/64"))); err != nil {
		t.Fatal(err)
	}

	gone4, gone6 := netip.MustParseAddrPort("10.9.0.9:53"), netip.MustParseAddrPort("[fd09::9]:53")
	front4, front6 := netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[2001:db8::1]:53")
	other := netip.MustParseAddrPort("192.0.2.1:54")
	sock := frontendsOf(t, map[string]string{front4.String(): gone4.String(), front6.String(): gone6.String(), other.String(): "10.9.0.9:54"})

	again := udpTo(t, front4, false)
	if err := unix.Connect(again, &unix.SockaddrInet4{Addr: gone4.Addr().As4(), Port: int(gone4.Port())}); err != nil {
		t.Fatal(err)
	}

	sockets := []struct {
		name   string
		fd     int
		doomed bool
	}{
		{"IPv4", udpTo(t, front4, false), true},
		{"another of IPv4", udpTo(t, front4, false), true},
		{"IPv6", udpTo(t, front6, false), true},
		{"IPv4-mapped", udpTo(t, front4, true), true},
		{"another endpoint", udpTo(t, other, false), false},
		{"IPv4 without a frontend", udpTo(t, gone4, false), false},
		{"IPv6 without a frontend", udpTo(t, gone6, false), false},
		{"IPv4-mapped without a frontend", udpTo(t, gone4, true), false},
		{"connected again without a frontend", again, false},
	}
	if n, err := DestroyUDP(nil, sock.Translated); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}

	n, err := DestroyUDP([]netip.AddrPort{gone4, gone6}, sock.Translated)
	if errors.Is(err, ErrNoSocketDestroy) {
		t.Skip("this kernel cannot destroy sockets:", err) // decided by the kernel's own answer
	}

	if err != nil || n != 4 {
		t.Errorf("destroyed %d sockets, %v; want 4", n, err)
	}

	for _, s := range sockets {
		_, _, err := unix.Recvfrom(s.fd, make([]byte, 1), unix.MSG_DONTWAIT)
		if doomed := errors.Is(err, unix.ECONNABORTED); doomed != s.doomed {
			t.Errorf("%s: receive: %v", s.name, err)
		}

		_, err = unix.Getpeername(s.fd)
		if doomed := errors.Is(err, unix.ENOTCONN); doomed != s.doomed {
			t.Errorf("%s: peer: %v", s.name, err)
		}
	}

	if n, err := DestroyUDP([]netip.AddrPort{gone4, gone6}, sock.Translated); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

// TestDestroyUntranslatedUDP checks that only sockets end that connected to a frontend before it
// existed, and that a client that connects again from the same port reaches the backend.
func TestDestroyUntranslatedUDP(t *testing.T) {
	veth(t, "tst1")

	if err := errors.Join(SetUp("tst1"), SyncAddresses("tst1", prefixes("10.9.1.2/24", "fd09:1::2/64"))); err != nil {
		t.Fatal(err)
	}

	ap := netip.MustParseAddrPort
	front4, front6, own, served := ap("10.9.1.1:53"), ap("[fd09:1::1]:53"), ap("10.9.1.2:30053"), ap("10.9.1.2:30054")
	server := udpOn(t, served)
	sockets := []struct {
		name   string
		fd     int
		doomed bool
	}{
		{"IPv4", udpTo(t, front4, false), true},
		{"IPv6", udpTo(t, front6, false), true},
		{"IPv4-mapped", udpTo(t, front4, true), true},
		{"an own address", udpTo(t, own, false), true},
		{"a server at an own address", udpTo(t, served, false), false},
		{"another port", udpTo(t, ap("10.9.1.1:54"), false), false},
		{"another address", udpTo(t, ap("10.9.1.3:53"), false), false},
		{"not connected", server, false},
	}
	sock := frontendsOf(t, map[string]string{front4.String(): "10.9.1.9:5353", front6.String(): "[fd09:1::9]:5353", own.String(): "10.9.1.9:5353", served.String(): "10.9.1.9:5353"})
	translated := udpTo(t, front4, false)
	mine := []netip.Addr{own.Addr()}

	if n, err := DestroyUntranslatedUDP(nil, mine, sock.Translated); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}

	n, err := DestroyUntranslatedUDP([]netip.AddrPort{front4, front6, own, served}, mine, sock.Translated)
	if errors.Is(err, ErrNoSocketDestroy) {
		t.Skip("this kernel cannot destroy sockets:", err) // decided by the kernel's own answer
	}

	if err != nil || n != 4 {
		t.Errorf("destroyed %d sockets, %v; want 4", n, err)
	}

	for _, s := range append(sockets, struct {
		name   string
		fd     int
		doomed bool
	}{"translated", translated, false}) {
		_, _, err := unix.Recvfrom(s.fd, make([]byte, 1), unix.MSG_DONTWAIT)
		if doomed := errors.Is(err, unix.ECONNABORTED); doomed != s.doomed {
			t.Errorf("%s: receive: %v", s.name, err)
		}
	}

	again := udpTo(t, front4, false)
	if n, err := DestroyUntranslatedUDP([]netip.AddrPort{front4}, mine, sock.Translated); n != 0 || err != nil {
		t.Errorf("connected again: %d, %v", n, err)
	}

	if peers, err := socketsOf(unix.IPPROTO_UDP); err != nil || len(connectedTo(peers, []netip.AddrPort{ap("10.9.1.9:5353")})) != 2 {
		t.Errorf("socket %d is not connected to the backend: %v", again, err)
	}
}

// udpOn returns a UDP socket that is bound to the address.
func udpOn(t *testing.T, at netip.AddrPort) int {
	t.Helper()

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		t.Fatalf("bind to %v: %v", at, err)
	}

	return fd
}

// bindTCP returns a TCP socket that is bound to the address but neither listens nor is connected.
func bindTCP(t *testing.T, at netip.AddrPort) int {
	t.Helper()

	domain := unix.AF_INET

	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	} else {
		sa = &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}

	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	if err := unix.Bind(fd, sa); err != nil {
		t.Fatalf("bind to %v: %v", at, err)
	}

	return fd
}

func TestBoundTCP(t *testing.T) {
	at := netip.MustParseAddrPort
	for _, other := range []string{"127.0.0.1:50000", "[::1]:50000", "0.0.0.0:49999", "0.0.0.0:50011"} {
		bindTCP(t, at(other))
	}

	bindTCP(t, at("0.0.0.0:50003"))
	bindTCP(t, at("[::]:50004"))
	listens := bindTCP(t, at("0.0.0.0:50005"))

	got, err := BoundTCP(50000, 50010)
	if err == nil && len(got) == 0 && !since(t, 6, 8) {
		t.Skip("Linux before 6.8 does not list them")
	}

	tcp := func(s string) Socket { return Socket{Proto: unix.IPPROTO_TCP, Local: at(s)} }
	want := []Socket{tcp("0.0.0.0:50003"), tcp("0.0.0.0:50005"), tcp("[::]:50004")}

	sort := func(s []Socket) []Socket {
		slices.SortFunc(s, func(a, b Socket) int { return a.Local.Compare(b.Local) })
		return s
	}
	if err != nil || !slices.Equal(sort(got), want) {
		t.Errorf("bound: %v, error %v; want %v", got, err, want)
	}

	if err := unix.Listen(listens, 1); err != nil {
		t.Fatal(err)
	}

	got, err = BoundTCP(50000, 50010)
	if want := []Socket{want[0], want[2]}; err != nil || !slices.Equal(sort(got), want) {
		t.Errorf("when one listens: %v, error %v; want %v", got, err, want)
	}
}

// since reports whether this kernel has that release or a later one.
func since(t *testing.T, major, minor int) bool {
	t.Helper()

	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}

	var gotMajor, gotMinor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &gotMajor, &gotMinor); err != nil {
		t.Fatal(err)
	}

	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

// TestReceivers_loopback checks that listeners and unconnected UDP sockets are listed, also on
// loopback, and no others.
func TestReceivers_loopback(t *testing.T) {
	at := netip.MustParseAddrPort

	var wantTCP, wantUDP []netip.AddrPort

	for _, s := range []string{"0.0.0.0:50100", "127.0.0.1:50101", "127.0.0.53:50102", "[::]:50103", "[::1]:50104"} {
		if err := unix.Listen(bindTCP(t, at(s)), 1); err != nil {
			t.Fatal(err)
		}

		network := "udp6"
		if at(s).Addr().Is4() {
			network = "udp4" // "udp" would make an IPv6 socket for all addresses
		}

		u, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at(s)))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { u.Close() })

		wantTCP, wantUDP = append(wantTCP, at(s)), append(wantUDP, at(s))
	}

	bindTCP(t, at("127.0.0.1:50105"))
	connected := udpTo(t, at("127.0.0.1:50106"), false)

	local, err := unix.Getsockname(connected)
	if err != nil {
		t.Fatal(err)
	}

	tcp, udp, err := Receivers()
	if err != nil {
		t.Fatal(err)
	}

	if port := uint16(local.(*unix.SockaddrInet4).Port); slices.ContainsFunc(udp, func(a netip.AddrPort) bool { return a.Port() == port }) {
		t.Errorf("UDP sockets %v: port %d is connected", udp, port)
	}

	ours := func(all []netip.AddrPort) []netip.AddrPort {
		return slices.DeleteFunc(all, func(a netip.AddrPort) bool { return a.Port() < 50100 || a.Port() > 50105 })
	}
	for _, s := range []struct {
		proto     string
		got, want []netip.AddrPort
	}{{"TCP", ours(tcp), wantTCP}, {"UDP", ours(udp), wantUDP}} {
		slices.SortFunc(s.want, netip.AddrPort.Compare)

		if !slices.Equal(s.got, s.want) {
			t.Errorf("%s: %v, want %v", s.proto, s.got, s.want)
		}
	}
}
