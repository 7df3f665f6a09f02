package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// listen opens the server's listening socket, the first one of s.fds.
func (s *sockets) listen() (int, error) {
	fd, err := s.bound(s.ends.server, unix.SOCK_STREAM, s.ends.remote)
	if err != nil {
		return -1, err
	}

	return fd, call("listen", unix.SYS_LISTEN, uintptr(fd), 128, 0)
}

// connected opens a connection per flow, and returns the sockets of both ends by flow.
func (s *sockets) connected() (clients, servers []int, err error) {
	listener, err := s.listen()
	if err != nil {
		return nil, nil, err
	}

	if clients, err = s.clients(unix.SOCK_STREAM); err != nil {
		return nil, nil, err
	}

	for range clients {
		fd, err := accept(listener)
		if err != nil {
			return nil, nil, err
		}

		s.fds = append(s.fds, fd)
		servers = append(servers, fd)
	}

	for _, fd := range s.fds[1:] {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, nil, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}

	return clients, servers, nil
}

// tcp opens a connection per flow. An operation is a byte to the server and a byte back.
func (s *sockets) tcp() (func(int) error, error) {
	clients, servers, err := s.connected()
	if err != nil {
		return nil, err
	}

	return func(flow int) error { return s.exchange(clients[flow], servers[flow]) }, nil
}

// stream opens a connection per flow. An operation writes streamSize bytes at once, to the server
// or to the client, and reads all of them at the other end.
func (s *sockets) stream(toClient bool) (func(int) error, error) {
	from, to, err := s.connected()
	if err != nil {
		return nil, err
	}

	if toClient {
		from, to = to, from
	}

	for _, fd := range s.fds[1:] {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}))
	}

	if err != nil {
		return nil, fmt.Errorf("set buffers: %w", err)
	}

	out, in := make([]byte, streamSize), make([]byte, streamSize)

	return func(flow int) error {
		if err := send(from[flow], out, nil); err != nil {
			return err
		}

		for left := streamSize; left > 0; {
			n, err := receiveSome(to[flow], in[:left])
			if err != nil {
				return err
			}

			left -= n
		}

		return nil
	}, nil
}

// exchange sends a byte to the server and a byte back.
func (s *sockets) exchange(client, server int) error {
	data := s.buf[:1]
	if err := send(client, data, nil); err != nil {
		return err
	}

	if err := receive(server, data, nil); err != nil {
		return err
	}

	if err := send(server, data, nil); err != nil {
		return err
	}

	err := receive(client, data, nil)

	return err
}

// tcpConnect opens only the listening socket. An operation opens a connection, exchanges a byte in
// each direction, and closes it, the client first. The thread must be in the client's namespace.
func (s *sockets) tcpConnect() (func(int) error, error) {
	listener, err := s.listen()
	if err != nil {
		return nil, err
	}

	family := uintptr(s.ends.local.family())

	return func(int) error {
		fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if errno != 0 {
			return fmt.Errorf("socket: %w", errno)
		}

		client := int(fd)
		if err := connect(client, &s.ends.to); err != nil {
			return err
		}

		server, err := accept(listener)
		if err != nil {
			return err
		}

		if err := s.exchange(client, server); err != nil {
			return err
		}

		closeSocket(client)
		closeSocket(server)

		return nil
	}, nil
}
