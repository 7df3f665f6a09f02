package bpf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// translates reports whether a UDP socket that connects to an address gets a backend of the node
// port of h.
func (h *sockHost) translates(t *testing.T, s *Sock, to netip.AddrPort, mapped bool) bool {
	t.Helper()

	c := h.client(t, unix.SOCK_DGRAM, to.Addr(), mapped)
	defer c.close()
	// Without the translation, no route may lead to the address.
	if err := c.connect(to); err != nil && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) {
		t.Fatalf("connect to %v: %v", to, err)
	}

	cookie, err := unix.GetsockoptUint64(c.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Fatal(err)
	}

	for _, back := range backs(backAddrs...) {
		yes, err := s.Translated(cookie, back)
		if err != nil {
			t.Fatal(err)
		}

		if yes {
			return true
		}
	}

	return false
}

// TestSock_ownAddresses compares the program's definition of the host's addresses with IsOwn of
// package service, by connections to a node port at each of them. A host port has the same addresses,
// except loopback.
func TestSock_ownAddresses(t *testing.T) {
	const port = 30080

	var has []netip.Addr
	for _, a := range append(hostAddrs4, "2001:db8::1") {
		has = append(has, netip.MustParseAddr(a))
	}

	addresses := []string{
		"0.0.0.0", "::", "127.0.0.1", "127.0.0.53", "127.1.2.3", "127.255.255.254", "::1",
		"192.0.2.1", "192.0.2.2", "2001:db8::1",
		"192.0.2.9", "2001:db8::9", "126.255.255.255", "128.0.0.1", "169.254.1.1", "169.254.169.2", "198.51.100.1",
		"::2", "::7f00:1", "fe80::1", "fd00::1",
	}

	for _, kind := range []struct {
		name        string
		notLoopback bool
	}{{"node port", false}, {"host port", true}} {
		t.Run(kind.name, func(t *testing.T) {
			h := newSockHost(t)
			s := h.open(t, SockService{Key: "default/web", Ports: []SockPort{{
				Frontends: fronts(node4, node6), Proto: protoUDP, Backends: backs(backAddrs...), NotLoopback: kind.notLoopback,
			}}})

			for _, text := range addresses {
				a := netip.MustParseAddr(text)

				want := service.IsOwn(a, func(a netip.Addr) bool { return slices.Contains(has, a) })
				if kind.notLoopback && (a.IsLoopback() || a.IsUnspecified()) { // connecting to the latter means the former
					want = false
				}

				for _, mapped := range []bool{false, true} {
					if mapped && !a.Is4() {
						continue
					}

					if got := h.translates(t, s, netip.AddrPortFrom(a, port), mapped); got != want {
						t.Errorf("%s, mapped %t: translated %t, want %t", a, mapped, got, want)
					}
				}
			}
		})
	}
}

// TestSock_notLoopbackKeepsAffinity checks that the flag does not change the session affinity, which
// shares a field with it.
func TestSock_notLoopbackKeepsAffinity(t *testing.T) {
	h := newSockHost(t)
	svc := SockService{Key: "default/web", Ports: []SockPort{{
		Frontends: fronts(node4), Proto: protoTCP, Backends: backs(backAddrs[:3]...), NotLoopback: true,
	}}}
	h.open(t, svc)

	seen := map[string]bool{}
	for range 100 {
		seen[connectOnce(t, h, unix.SOCK_STREAM, netip.MustParseAddrPort("192.0.2.1:30080"), false)] = true
	}

	if len(seen) < 3 { // by chance once in 10^17
		t.Errorf("without affinity, 100 connections reach only %v", seen)
	}
}
