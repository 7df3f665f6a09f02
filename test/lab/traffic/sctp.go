package traffic

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// sctpSocket returns a bound one-to-one socket (RFC 6458, 4). It is used like TCP, and package net
// accepts it as such. An association offers all addresses of the host unless its socket is bound to
// one (RFC 9260, 5.1.2); NAT does not know the other addresses.
func sctpSocket(local netip.AddrPort) (int, error) {
	family := unix.AF_INET
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}

	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return -1, fmt.Errorf("open SCTP socket: %w", err)
	}

	if err := unix.Bind(fd, sockaddr(local)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind SCTP socket to %s: %w", local, err)
	}

	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}

	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// askSCTP opens an association, sends a request, and closes it.
func askSCTP(_ context.Context, o options) (string, error) {
	to, err := netip.ParseAddrPort(o.addr)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUsage, err)
	}

	from, err := sctpSource(to, o)
	if err != nil {
		return "", err
	}

	fd, err := sctpSocket(from)
	if err != nil {
		return "", err
	}

	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close()

	limit := unix.NsecToTimeval(int64(o.timeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return "", err
	}

	if err := connect(fd, sockaddr(to), o.timeout); err != nil {
		return "", fmt.Errorf("connect SCTP to %s: %w", to, err)
	}

	c, err := net.FileConn(file)
	if err != nil {
		return "", err
	}
	defer c.Close()

	if err := c.SetDeadline(time.Now().Add(o.timeout)); err != nil {
		return "", err
	}

	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}

	line, err := bufio.NewReader(c).ReadString('\n')

	return strings.TrimSpace(line), err
}

// connect continues after signals, which Go's scheduler sends, while the association is being
// established.
func connect(fd int, to unix.Sockaddr, timeout time.Duration) error {
	err := unix.Connect(fd, to)
	for end := time.Now().Add(timeout); errors.Is(err, unix.EINTR); {
		left := time.Until(end)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}

		var n int

		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil || n == 0 {
			err = cmp.Or(err, error(unix.EINTR))
			continue
		}

		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}

		return err
	}

	return err
}

// sctpSource returns the source address that the host would use, determined by UDP.
func sctpSource(to netip.AddrPort, o options) (netip.AddrPort, error) {
	if o.src != "" {
		return source(o)
	}

	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()

	return netip.AddrPortFrom(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), uint16(o.sport)), nil
}

// serveSCTP serves at an address, which must be an address of the host.
func serveSCTP(ctx context.Context, group *errgroup.Group, addr, name string) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	fd, err := sctpSocket(at)
	if err != nil {
		return err
	}

	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close() // package net has duplicated it

	const backlog = 128
	if err := unix.Listen(fd, backlog); err != nil {
		return fmt.Errorf("listen on SCTP %s: %w", at, err)
	}

	l, err := net.FileListener(file)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on SCTP %s", at), err)
	}

	context.AfterFunc(ctx, func() { l.Close() })
	group.Go(func() error { return serveTCP(ctx, l, name) })

	return nil
}
