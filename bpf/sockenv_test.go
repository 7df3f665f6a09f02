package bpf

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// sockHost is a host with services. Its backends are in pod, a namespace of the same cgroup, one
// per address.
type sockHost struct {
	*namespace
	pod    *namespace
	pinDir string
	cgroup string
	cookie uint64
	writes int // of the last open
}

const backPort = 8080

var (
	hostAddrs4 = []string{"192.0.2.1", "192.0.2.2"}
	backAddrs  = []string{"192.0.2.11", "192.0.2.12", "192.0.2.13", "2001:db8::11", "2001:db8::12", "2001:db8::13"}
)

func newSockHost(t testing.TB) *sockHost {
	t.Helper()
	h := &sockHost{namespace: newNamespace(t), pod: newNamespace(t), pinDir: newPinDir(t), cgroup: testnode.Cgroup(t)}
	h.veth(t, "eth0", nodeMAC, h.pod, "pod0")

	for _, a := range append(hostAddrs4, "2001:db8::1") {
		h.addr(t, "eth0", prefixOf(a))
	}

	for _, a := range backAddrs {
		h.pod.addr(t, "pod0", prefixOf(a))
		serve(t, h.pod, netip.MustParseAddrPort(net.JoinHostPort(a, strconv.Itoa(backPort))))
	}

	h.must(t, func() (err error) {
		h.cookie, err = netnsCookie()
		return err
	})

	return h
}

func prefixOf(addr string) string {
	if strings.Contains(addr, ":") {
		return addr + "/64"
	}

	return addr + "/24"
}

// serve answers on TCP and UDP with its address.
func serve(t testing.TB, n *namespace, at netip.AddrPort) {
	t.Helper()

	var (
		l net.Listener
		u *net.UDPConn
	)

	n.must(t, func() (err error) {
		if l, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}

		u, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))

		return err
	})
	t.Cleanup(func() { l.Close(); u.Close() })

	name := []byte(at.Addr().String())

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			_, _ = c.Write(name)
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}

			_, _ = u.WriteToUDPAddrPort(name, from)
		}
	}()
}

// open loads and attaches the host's programs, with its addresses and services.
func (h *sockHost) open(t testing.TB, services ...SockService) *Sock {
	t.Helper()
	s, err := OpenSock(CgroupOptions{
		PinDir: h.pinDir, CgroupPath: h.cgroup, NetnsCookie: h.cookie,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { s.Close() })

	var own []netip.Addr
	for _, a := range append(hostAddrs4, "2001:db8::1") {
		own = append(own, netip.MustParseAddr(a))
	}

	if err := s.SyncAddrs(own); err != nil {
		t.Fatal(err)
	}

	if h.writes, err = s.SyncServices(services); err != nil {
		t.Fatal(err)
	}

	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}

	return s
}

func fronts(ends ...string) (out []netip.AddrPort) {
	for _, e := range ends {
		out = append(out, netip.MustParseAddrPort(e))
	}

	return out
}

func backs(addrs ...string) (out []netip.AddrPort) {
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), backPort))
	}

	return out
}

// tableLen returns the number of entries in a hash table.
func tableLen(t testing.TB, m *ebpf.Map) int {
	t.Helper()

	keys := make([]byte, m.KeySize())
	n := 0

	var next any
	for {
		err := m.NextKey(next, &keys)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return n
		}

		if err != nil {
			t.Fatal(err)
		}

		n++

		next = append([]byte(nil), keys...)
	}
}
