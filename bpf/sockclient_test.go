package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// client is a host socket.
type client struct {
	fd     int
	mapped bool // an IPv6 socket for IPv4 addresses
}

// client creates a socket for such an address; with mapped, an IPv6 socket for an IPv4 address.
func (n *namespace) client(t testing.TB, typ int, to netip.Addr, mapped bool) *client {
	t.Helper()

	c := &client{mapped: mapped}

	domain := unix.AF_INET
	if mapped || to.Is6() {
		domain = unix.AF_INET6
	}

	n.must(t, func() (err error) {
		c.fd, err = unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}

		tv := unix.Timeval{Sec: 10}

		return errors.Join(
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv),
		)
	})
	t.Cleanup(func() { c.close() })

	return c
}

func (c *client) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

func (c *client) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() && !c.mapped {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}

	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}

	return netip.AddrPort{}
}

// connect handles the signals with which Go's runtime preempts threads. The kernel continues to
// connect after such an interruption.
func (c *client) connect(to netip.AddrPort) error {
	err := unix.Connect(c.fd, c.sockaddr(to))
	if !errors.Is(err, unix.EINTR) {
		return err
	}

	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}

	if err := again(func() error { _, err := unix.Poll(fds, 10000); return err }); err != nil {
		return err
	}

	failed, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && failed != 0 {
		return unix.Errno(failed)
	}

	return err
}

// again repeats interrupted calls.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (c *client) peer(t testing.TB) netip.AddrPort {
	t.Helper()

	sa, err := unix.Getpeername(c.fd)
	if err != nil {
		t.Fatalf("getpeername: %v", err)
	}

	return addrPortOf(sa)
}

// ask sends to a UDP frontend. It is connected if to is the zero AddrPort. It returns the answering
// backend, and the source address that the socket sees.
func (c *client) ask(to netip.AddrPort) (backend string, from netip.AddrPort, err error) {
	err = again(func() error {
		if !to.IsValid() {
			_, err := unix.Write(c.fd, []byte("?"))
			return err
		}

		return unix.Sendto(c.fd, []byte("?"), 0, c.sockaddr(to))
	})
	if err != nil {
		return "", from, fmt.Errorf("send: %w", err)
	}

	return c.answer()
}

// answer waits for a datagram.
func (c *client) answer() (backend string, from netip.AddrPort, err error) {
	buf := make([]byte, 64)

	var (
		n  int
		sa unix.Sockaddr
	)

	err = again(func() (err error) { n, sa, err = unix.Recvfrom(c.fd, buf, 0); return err })
	if err != nil {
		return "", from, fmt.Errorf("receive: %w", err)
	}

	return string(buf[:n]), addrPortOf(sa), nil
}

// read returns all data of a TCP server.
func (c *client) read(t testing.TB) string {
	t.Helper()

	var all []byte

	buf := make([]byte, 64)

	for {
		var n int

		err := again(func() (err error) { n, err = unix.Read(c.fd, buf); return err })
		if err != nil {
			t.Fatalf("read: %v", err)
		}

		if n == 0 {
			return string(all)
		}

		all = append(all, buf[:n]...)
	}
}
