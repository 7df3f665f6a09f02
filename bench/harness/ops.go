package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

const (
	serverPort = 7007 // of the host's own, outside of the SNAT and NodePort ranges
	clientPort = 40000

	// One a test: so many connections to one port would run out of local ports.
	endpointPort, servicePort = 7008, 7009
	clusterIP                 = "10.96.0.1"

	// Of the node, and the pods' behind them.
	localNodePort, remoteNodePort, podPort = 30080, 30081, 8080

	streamSize = 60000

	// Of one address of the clients'; for more flows the next are used.
	portsEach = 10000

	// Above this number the clients of UDP are not connected: each sends to several ports of the server.
	maxSockets = 200000
)

// ends are the places of the two sockets.
type ends struct {
	client, server string // namespaces
	local, remote  address
	to             address // what the client connects to
}

func (t test) ends() ends {
	pod, far, node, outside := podIP, farPodIP, nodeIP, outsideIP
	if t.family == bench.IPv6 {
		pod, far, node, outside = podIP6, farPodIP6, nodeIP6, outsideIP6
	}

	switch {
	case t.overlay():
		return between(podNS, pod, outsideNS, far, serverPort)
	case t.northSouth():
		return between(podNS, pod, outsideNS, outside, serverPort)
	case t.name == bench.EndpointTCPCRR:
		return between(nodeNS, node, outsideNS, outside, endpointPort)
	case t.name == bench.ServiceTCPCRR:
		return between(nodeNS, node, outsideNS, outside, servicePort).by(clusterIP, 80)
	case t.name == bench.NodePortLocal:
		return between(outsideNS, outside, podNS, pod, podPort).by(node, localNodePort)
	case t.name == bench.NodePortRemote:
		return between(outsideNS, outside, outsideNS, far, podPort).by(node, remoteNodePort)
	}

	return between(outsideNS, outside, nodeNS, node, serverPort)
}

// by returns the ends for a client that connects to another address than the server's own.
func (e ends) by(ip string, port uint16) ends {
	e.to = newAddress(ip, port)
	return e
}

func between(client, local, server, remote string, port uint16) ends {
	e := ends{client: client, server: server, local: newAddress(local, clientPort), remote: newAddress(remote, port)}
	e.to = e.remote

	return e
}

// open prepares a test. op runs one operation on a flow; stop closes all sockets.
func open(t test) (op func(flow int) error, stop func(), err error) {
	o := &opened{ends: t.ends(), flows: t.flowNumber(), firstPort: t.firstPort()}
	switch {
	case t.stream():
		op, err = o.stream(t.name == bench.HostStreamOut)
	case t.connects():
		op, err = o.tcpConnect()
	case t.tcp():
		op, err = o.tcp()
	case strings.HasSuffix(t.name, "_udp_rr"):
		op, err = o.udp()
	case t.name == bench.HostICMP:
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

// bound opens a socket at one end and binds it.
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

// udp: connected clients and one server socket that replies to all.
func (o *opened) udp() (func(int) error, error) {
	if o.flows > maxSockets {
		return o.manyUDP()
	}

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

// manyUDP: portsEach clients, which are not connected, and a server socket for each time that they all
// are used.
func (o *opened) manyUDP() (func(int) error, error) {
	var (
		clients, servers []int
		remotes          []address
	)

	for i := range portsEach {
		local := o.ends.local
		binary.BigEndian.PutUint16(local.raw[2:], uint16(o.firstPort+i))

		fd, err := o.bound(o.ends.client, unix.SOCK_DGRAM, local)
		if err != nil {
			return nil, err
		}

		clients = append(clients, fd)
	}

	for i := range (o.flows + portsEach - 1) / portsEach {
		remote := o.ends.remote
		binary.BigEndian.PutUint16(remote.raw[2:], uint16(serverPort+i))

		fd, err := o.bound(o.ends.server, unix.SOCK_DGRAM, remote)
		if err != nil {
			return nil, err
		}

		servers, remotes = append(servers, fd), append(remotes, remote)
	}

	data := o.buf[:1]

	return func(flow int) error {
		client, server := clients[flow%portsEach], servers[flow/portsEach]
		if err := send(client, data, &remotes[flow/portsEach]); err != nil {
			return err
		}

		if err := receive(server, data, &o.from); err != nil {
			return err
		}

		if err := send(server, data, &o.from); err != nil {
			return err
		}

		return receive(client, data, nil)
	}, nil
}

// clients opens and connects a socket per flow, each with its own port.
func (o *opened) clients(kind int) ([]int, error) {
	var fds []int

	for i := range o.flows {
		local := o.ends.local.other(i / portsEach)
		binary.BigEndian.PutUint16(local.raw[2:], uint16(o.firstPort+i%portsEach))

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

// icmp: echo requests from a raw socket outside, answered by the node's kernel.
func (o *opened) icmp() (func(int) error, error) {
	fd, err := socket(o.ends.client, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return nil, err
	}

	o.fds = append(o.fds, fd)
	// A set bit rejects a type. See icmp(4), ICMP_FILTER.
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
