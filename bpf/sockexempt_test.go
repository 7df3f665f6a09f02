package bpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// exempt exempts the socket.
func (c *client) exempt(t *testing.T, h *sockHost) {
	t.Helper()

	if err := ExemptSocket(h.pinDir, uintptr(c.fd)); err != nil {
		t.Fatal(err)
	}
}

// poison is a Service at the address of a server that is not the Service's, without endpoints.
func poison(servers ...netip.AddrPort) SockService {
	return SockService{Key: "tenant/poison", Ports: []SockPort{{Frontends: servers, Proto: protoTCP}}}
}

// TestExemptSocket_isNotTranslated checks that an exempt socket reaches a server at whose address
// there is a frontend, while other sockets are refused. The process that loaded the programs may have
// ended.
func TestExemptSocket_isNotTranslated(t *testing.T) {
	h := newSockHost(t)
	server4, server6 := netip.MustParseAddrPort("192.0.2.13:8080"), netip.MustParseAddrPort("[2001:db8::13]:8080")

	s := h.open(t, poison(server4, server6))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for _, way := range []sockWay{
		{"IPv4", server4.String(), false}, {"IPv6", server6.String(), false}, {"IPv4-mapped", server4.String(), true},
	} {
		t.Run(way.name, func(t *testing.T) {
			to := netip.MustParseAddrPort(way.to)

			other := h.client(t, unix.SOCK_STREAM, to.Addr(), way.mapped)
			if err := other.connect(to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("ordinary socket: %v, want ECONNREFUSED", err)
			}

			c := h.client(t, unix.SOCK_STREAM, to.Addr(), way.mapped)
			c.exempt(t, h)

			if err := c.connect(to); err != nil {
				t.Fatalf("exempt socket: %v", err)
			}

			if got := c.peer(t); got != to {
				t.Errorf("peer is %v, want %v", got, to)
			}

			if got := c.read(t); got != to.Addr().String() {
				t.Errorf("answered by %s", got)
			}
		})
	}
}

// TestExemptSocket_withBackends checks that a frontend with backends does not receive the connection,
// and that the socket's own peer is reported.
func TestExemptSocket_withBackends(t *testing.T) {
	h := newSockHost(t)
	server := netip.MustParseAddrPort("192.0.2.13:8080")
	web := SockService{Key: "tenant/web", Ports: []SockPort{{Frontends: []netip.AddrPort{server}, Proto: protoTCP, Backends: backs(backAddrs[0])}}}
	h.open(t, web)

	if got := connectOnce(t, h, unix.SOCK_STREAM, server, false); got != backAddrs[0] {
		t.Errorf("ordinary socket: answered by %s", got)
	}

	c := h.client(t, unix.SOCK_STREAM, server.Addr(), false)
	c.exempt(t, h)

	if err := c.connect(server); err != nil {
		t.Fatal(err)
	}

	if got := c.peer(t); got != server {
		t.Errorf("peer is %v, want %v", got, server)
	}

	if got := c.read(t); got != "192.0.2.13" {
		t.Errorf("exempt socket: answered by %s", got)
	}
}

// TestExemptSocket_withoutTable checks that nothing happens on a node without the programs, and on one
// whose programs have no such table.
func TestExemptSocket_withoutTable(t *testing.T) {
	h := newSockHost(t)
	server := netip.MustParseAddrPort("192.0.2.13:8080")
	h.client(t, unix.SOCK_STREAM, server.Addr(), false).exempt(t, h)

	h.open(t, webService(backAddrs...))

	if err := os.Remove(filepath.Join(h.pinDir, sockMapSockExempt)); err != nil {
		t.Fatal(err)
	}

	c := h.client(t, unix.SOCK_STREAM, server.Addr(), false)
	c.exempt(t, h)

	if err := c.connect(server); err != nil {
		t.Fatal(err)
	}
}
