package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	vip4, vip6   = "10.96.0.10:80", "[fd00:10:96::10]:80"
	node4, node6 = "0.0.0.0:30080", "[::]:30080"
)

// webService is on both protocols and families, as ClusterIP and NodePort.
func webService(backends ...string) SockService {
	ends := fronts(vip4, vip6, node4, node6)

	return SockService{Key: "default/web", Ports: []SockPort{
		{Frontends: ends, Proto: protoTCP, Backends: backs(backends...)},
		{Frontends: ends, Proto: protoUDP, Backends: backs(backends...)},
	}}
}

type sockWay struct {
	name   string
	to     string
	mapped bool
}

var sockWays = []sockWay{
	{"v4", vip4, false},
	{"v6", vip6, false},
	{"mapped", vip4, true},
	{"node port, own address", "192.0.2.2:30080", false},
	{"node port, own address, mapped", "192.0.2.2:30080", true},
	{"node port, own v6 address", "[2001:db8::1]:30080", false},
	{"node port, loopback", "127.0.0.1:30080", false},
	{"node port, other loopback", "127.0.0.53:30080", false},
	{"node port, v6 loopback", "[::1]:30080", false},
	{"node port, mapped loopback", "127.0.0.1:30080", true},
}

// backendsOf are those of the address's family.
func backendsOf(a netip.Addr) []string {
	if a.Is4() {
		return backAddrs[:3]
	}

	return backAddrs[3:]
}

func TestSock_connect(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs...))

	for _, typ := range []struct {
		name string
		typ  int
	}{{"tcp", unix.SOCK_STREAM}, {"udp", unix.SOCK_DGRAM}} {
		for _, way := range sockWays {
			t.Run(typ.name+", "+way.name, func(t *testing.T) {
				to := netip.MustParseAddrPort(way.to)

				seen := make(map[string]int)
				for range 100 {
					seen[connectOnce(t, h, typ.typ, to, way.mapped)]++
					if len(seen) == 3 {
						break
					}
				}

				for name := range seen {
					if !slices.Contains(backendsOf(to.Addr()), name) {
						t.Errorf("answered by %q", name)
					}
				}

				if len(seen) < 3 { // by chance once in 10^17
					t.Errorf("after 100 connections: backends %v", seen)
				}
			})
		}
	}
}

// connectOnce returns the answering backend. It checks that the socket sees the frontend as its peer.
func connectOnce(t *testing.T, h *sockHost, typ int, to netip.AddrPort, mapped bool) string {
	t.Helper()

	c := h.client(t, typ, to.Addr(), mapped)
	defer c.close()

	if err := c.connect(to); err != nil {
		t.Fatalf("connect to %v: %v", to, err)
	}

	if got := c.peer(t); got != to {
		t.Errorf("connected to %v: peer is %v", to, got)
	}

	if typ == unix.SOCK_STREAM {
		return c.read(t)
	}

	name, from, err := c.ask(netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}

	if from != to {
		t.Errorf("connected to %v: datagram from %v", to, from)
	}

	return name
}

func TestSock_sendmsg(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs...))

	for _, way := range sockWays {
		t.Run(way.name, func(t *testing.T) {
			to := netip.MustParseAddrPort(way.to)
			seen := make(map[string]bool)

			for range 100 {
				c := h.client(t, unix.SOCK_DGRAM, to.Addr(), way.mapped)
				first := ""

				for i := range 5 {
					name, from, err := c.ask(to)
					if err != nil {
						t.Fatal(err)
					}

					if from != to {
						t.Errorf("asked %v: datagram from %v", to, from)
					}

					if i > 0 && name != first {
						t.Errorf("one socket: answered by %s, then by %s", first, name)
					}

					first = name
				}

				c.close()

				seen[first] = true
				if len(seen) == 3 {
					break
				}
			}

			if len(seen) < 3 {
				t.Errorf("100 sockets: backends %v", seen)
			}
		})
	}
}

// The unspecified address means loopback to the kernel, so to us.
func TestSock_unspecified(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs...))

	for _, tt := range []struct {
		to, peer string
		mapped   bool
	}{
		{"0.0.0.0:30080", "127.0.0.1:30080", false},
		{"[::]:30080", "[::1]:30080", false},
		{"0.0.0.0:30080", "127.0.0.1:30080", true},
	} {
		to, want := netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.peer)

		c := h.client(t, unix.SOCK_STREAM, to.Addr(), tt.mapped)
		if err := c.connect(to); err != nil {
			t.Fatalf("connect to %v: %v", to, err)
		}

		if got := c.peer(t); got != want {
			t.Errorf("connected to %v, mapped %t: peer is %v, want %v", to, tt.mapped, got, want)
		}
	}
}

// Not a service's: as if nothing were attached.
func TestSock_untouched(t *testing.T) {
	h := newSockHost(t)
	serve(t, h.namespace, netip.MustParseAddrPort("192.0.2.1:30081"))
	serve(t, h.pod, netip.MustParseAddrPort("192.0.2.13:30080"))
	h.open(t, webService(backAddrs[:2]...))

	for _, tt := range []struct {
		name, to, want string
		from           *namespace
	}{
		{"own address, no node port", "192.0.2.1:30081", "192.0.2.1", h.namespace},
		{"a node port on another node", "192.0.2.13:30080", "192.0.2.13", h.namespace},
		{"a backend itself", "192.0.2.12:8080", "192.0.2.12", h.namespace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to := netip.MustParseAddrPort(tt.to)
			for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				if got := connectOnce(t, h, typ, to, false); got != tt.want {
					t.Errorf("answered by %s, want %s", got, tt.want)
				}
			}

			c := h.client(t, unix.SOCK_DGRAM, to.Addr(), false)
			if name, from, err := c.ask(to); err != nil || name != tt.want || from != to {
				t.Errorf("answered by %s at %v, %v", name, from, err)
			}
		})
	}
}

// Pods' sockets are OVN's, though their processes are in the same cgroup.
func TestSock_otherNamespace(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs[:1]...))
	h.pod.addr(t, "lo", "10.96.0.10/32")
	serve(t, h.pod, netip.MustParseAddrPort(vip4))
	to := netip.MustParseAddrPort(vip4)

	c := h.pod.client(t, unix.SOCK_STREAM, to.Addr(), false)
	if err := c.connect(to); err != nil {
		t.Fatal(err)
	}

	if got := c.read(t); got != "10.96.0.10" {
		t.Errorf("a pod's connection to its own address went to %s", got)
	}

	u := h.pod.client(t, unix.SOCK_DGRAM, to.Addr(), false)
	if got, _, err := u.ask(to); err != nil || got != "10.96.0.10" {
		t.Errorf("a pod's datagram to its own address went to %s, %v", got, err)
	}
}

func TestSock_refuses(t *testing.T) {
	h := newSockHost(t)

	s := h.open(t, webService(backAddrs[:3]...)) // no IPv6 backend
	for _, way := range []sockWay{{"v6", vip6, false}, {"node port", "[::1]:30080", false}} {
		wantRefused(t, h, netip.MustParseAddrPort(way.to), way.mapped)
	}

	if _, err := s.UpdateServices([]SockService{webService()}); err != nil {
		t.Fatal(err)
	}

	for _, way := range sockWays {
		wantRefused(t, h, netip.MustParseAddrPort(way.to), way.mapped)
	}

	if _, err := s.UpdateServices([]SockService{webService(backAddrs...)}); err != nil {
		t.Fatal(err)
	}

	for _, way := range sockWays {
		connectOnce(t, h, unix.SOCK_STREAM, netip.MustParseAddrPort(way.to), way.mapped)
	}
}

func wantRefused(t *testing.T, h *sockHost, to netip.AddrPort, mapped bool) {
	t.Helper()

	check := func(what string, err error) {
		t.Helper()

		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s %v, mapped %t: %v, want ECONNREFUSED", what, to, mapped, err)
		}
	}

	for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		c := h.client(t, typ, to.Addr(), mapped)
		check(fmt.Sprintf("connect type %d to", typ), c.connect(to))
		c.close()
	}

	c := h.client(t, unix.SOCK_DGRAM, to.Addr(), mapped)
	_, _, err := c.ask(to)
	check("send to", err)
	c.close()
}
