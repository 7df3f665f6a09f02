package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

const (
	serverPort = 7007 // of the host's own, outside of the SNAT and NodePort ranges
	clientPort = 40000

	// One a test: so many connections to one port would run out of local ports.
	endpointPort, servicePort = 7008, 7009
	clusterIP                 = "10.96.0.1"
)

// ends are the two sockets' places.
type ends struct {
	client, server string // namespaces
	local, remote  address
	to             address // what the client connects to
}

func (t test) ends() ends {
	switch {
	case t.overlay():
		return between(podNS, podIP, outsideNS, farPodIP, serverPort)
	case t.northSouth():
		return between(podNS, podIP, outsideNS, outsideIP, serverPort)
	case t.name == bench.EndpointTCPCRR:
		return between(nodeNS, nodeIP, outsideNS, outsideIP, endpointPort)
	case t.name == bench.ServiceTCPCRR:
		e := between(nodeNS, nodeIP, outsideNS, outsideIP, servicePort)
		e.to = newAddress(clusterIP, 80)
		return e
	case t.family == bench.IPv6:
		return between(outsideNS, outsideIP6, nodeNS, nodeIP6, serverPort)
	}
	return between(outsideNS, outsideIP, nodeNS, nodeIP, serverPort)
}

func between(client, local, server, remote string, port uint16) ends {
	e := ends{client: client, server: server, local: newAddress(local, clientPort), remote: newAddress(remote, port)}
	e.to = e.remote
	return e
}

// open prepares a test. op does one operation on one of the flows; stop closes
// everything.
func open(t test) (op func(flow int) error, stop func(), err error) {
	o := &opened{ends: t.ends(), flows: t.flowNumber(), firstPort: t.firstPort()}
	switch t.name {
	case bench.HostUDPRR, bench.OverlayUDPRR, bench.NSUDPRR:
		op, err = o.udp()
	case bench.HostTCPRR:
		op, err = o.tcp()
	case bench.HostTCPCRR, bench.NSTCPCRR, bench.EndpointTCPCRR, bench.ServiceTCPCRR:
		op, err = o.tcpConnect()
	case bench.HostICMP:
		op, err = o.icmp()
	default:
		err = errors.New("no such test")
	}
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return op, o.close, nil
}

type opened struct {
	ends      ends
	flows     int
	firstPort int
	fds       []int
	buf       [256]byte
	from      address
}

func (o *opened) close() {
	for _, fd := range o.fds {
		closeSocket(fd)
	}
}

// bound opens a socket of one end and binds it.
func (o *opened) bound(netns string, kind int, a address) (int, error) {
	fd, err := socket(netns, a.family(), kind, 0)
	if err != nil {
		return -1, err
	}
	o.fds = append(o.fds, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	return fd, bind(fd, &a)
}

// udp: connected clients, one server socket that answers whoever asked.
func (o *opened) udp() (func(int) error, error) {
	server, err := o.bound(o.ends.server, unix.SOCK_DGRAM, o.ends.remote)
	if err != nil {
		return nil, err
	}
	clients, err := o.clients(unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	data := o.buf[:1]
	return func(flow int) error {
		if err := send(clients[flow], data, nil); err != nil {
			return err
		}
		if err := receive(server, data, &o.from); err != nil {
			return err
		}
		if err := send(server, data, &o.from); err != nil {
			return err
		}
		err := receive(clients[flow], data, nil)
		return err
	}, nil
}

// clients opens a socket a flow, each from a port of its own, and connects it.
func (o *opened) clients(kind int) ([]int, error) {
	var fds []int
	for i := range o.flows {
		local := o.ends.local
		binary.BigEndian.PutUint16(local.raw[2:], uint16(o.firstPort+i))
		fd, err := o.bound(o.ends.client, kind, local)
		if err != nil {
			return nil, err
		}
		if err := connect(fd, &o.ends.remote); err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func (o *opened) listen() error {
	fd, err := o.bound(o.ends.server, unix.SOCK_STREAM, o.ends.remote)
	if err != nil {
		return err
	}
	return call("listen", unix.SYS_LISTEN, uintptr(fd), 128, 0)
}

// tcp: one byte there, one back, on connections that stay.
func (o *opened) tcp() (func(int) error, error) {
	if err := o.listen(); err != nil {
		return nil, err
	}
	listener := o.fds[0]
	clients, err := o.clients(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	var servers []int
	for range clients {
		fd, err := accept(listener)
		if err != nil {
			return nil, err
		}
		o.fds = append(o.fds, fd)
		servers = append(servers, fd)
	}
	for _, fd := range o.fds[1:] {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return nil, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}
	return func(flow int) error { return o.exchange(clients[flow], servers[flow]) }, nil
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

// tcpConnect: a connection for each exchange, closed by the client first. It needs
// the thread to be in the client's namespace.
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

// icmp: echo requests from a raw socket outside, answered by the node's kernel.
func (o *opened) icmp() (func(int) error, error) {
	fd, err := socket(o.ends.client, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return nil, err
	}
	o.fds = append(o.fds, fd)
	// Bit by type, set: not wanted. See icmp(4), ICMP_FILTER.
	const icmpFilter, echoReply = 1, 0
	if err := unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, ^(1 << echoReply)); err != nil {
		return nil, fmt.Errorf("set ICMP_FILTER: %w", err)
	}
	to := o.ends.remote
	binary.BigEndian.PutUint16(to.raw[2:], 0)
	if err := connect(fd, &to); err != nil {
		return nil, err
	}
	requests := make([][]byte, o.flows)
	for i := range requests {
		requests[i] = echoRequest(uint16(o.firstPort + i))
	}
	return func(flow int) error {
		if err := send(fd, requests[flow], nil); err != nil {
			return err
		}
		err := receive(fd, o.buf[:], nil)
		return err
	}, nil
}

// echoRequest returns an ICMP echo request of 64 bytes.
func echoRequest(id uint16) []byte {
	p := make([]byte, 64)
	p[0] = 8
	binary.BigEndian.PutUint16(p[4:], id)
	binary.BigEndian.PutUint16(p[6:], 1)
	var sum uint32
	for i := 0; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[2:], ^uint16(sum+sum>>16))
	return p
}
