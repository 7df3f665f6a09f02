package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func (o *opened) listen() error {
	fd, err := o.bound(o.ends.server, unix.SOCK_STREAM, o.ends.remote)
	if err != nil {
		return err
	}

	return call("listen", unix.SYS_LISTEN, uintptr(fd), 128, 0)
}

// connected opens the flows' connections: the clients' and the servers' ends.
func (o *opened) connected() (clients, servers []int, err error) {
	if err := o.listen(); err != nil {
		return nil, nil, err
	}

	listener := o.fds[0]
	if clients, err = o.clients(unix.SOCK_STREAM); err != nil {
		return nil, nil, err
	}

	for range clients {
		fd, err := accept(listener)
		if err != nil {
			return nil, nil, err
		}

		o.fds = append(o.fds, fd)
		servers = append(servers, fd)
	}

	for _, fd := range o.fds[1:] {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, nil, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}

	return clients, servers, nil
}

// tcp: one byte in each direction on persistent connections.
func (o *opened) tcp() (func(int) error, error) {
	clients, servers, err := o.connected()
	if err != nil {
		return nil, err
	}

	return func(flow int) error { return o.exchange(clients[flow], servers[flow]) }, nil
}

// stream: streamSize bytes to the server, or to the client, written at once and read completely.
func (o *opened) stream(toClient bool) (func(int) error, error) {
	from, to, err := o.connected()
	if err != nil {
		return nil, err
	}

	if toClient {
		from, to = to, from
	}

	for _, fd := range o.fds[1:] {
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

func (o *opened) exchange(client, server int) error {
	data := o.buf[:1]
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

// tcpConnect: one connection per exchange, closed by the client first. It needs the thread in the
// client's namespace.
func (o *opened) tcpConnect() (func(int) error, error) {
	if err := o.listen(); err != nil {
		return nil, err
	}

	listener, family := o.fds[0], uintptr(o.ends.local.family())

	return func(int) error {
		fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if errno != 0 {
			return fmt.Errorf("socket: %w", errno)
		}

		client := int(fd)
		if err := connect(client, &o.ends.to); err != nil {
			return err
		}

		server, err := accept(listener)
		if err != nil {
			return err
		}

		if err := o.exchange(client, server); err != nil {
			return err
		}

		closeSocket(client)
		closeSocket(server)

		return nil
	}, nil
}
