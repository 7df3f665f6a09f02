package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// Ports of the tests. A port of the host is outside of the SNAT and NodePort ranges.
const (
	serverPort = 7007
	clientPort = 40000 // first one of the clients

	// Servers of two tests with a connection per operation. On one port, these connections would
	// run out of local ports.
	endpointPort, servicePort = 7008, 7009
	clusterIP                 = "10.96.0.1"

	localNodePort, remoteNodePort = 30080, 30081 // of the node
	podPort                       = 8080         // of the pods behind them
)

const (
	streamSize = 60000 // bytes of a write

	// portsEach is the number of client ports per address. More flows use further addresses.
	portsEach = 10000

	// maxSockets is the maximum number of flows with a client socket each. With more flows of UDP, a
	// client socket is not connected, and sends to several ports of the server.
	maxSockets = 200000
)

// ends are the places of a test's two sockets. The client connects to the address to, which differs
// from the server's own address (remote) if a Service or NodePort is between them.
type ends struct {
	client, server string // namespaces
	local, remote  address
	to             address
}

// ends returns the places of the test's sockets.
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
		return between(nodeNS, node, outsideNS, outside, servicePort).via(clusterIP, 80)
	case t.name == bench.NodePortLocal:
		return between(outsideNS, outside, podNS, pod, podPort).via(node, localNodePort)
	case t.name == bench.NodePortRemote:
		return between(outsideNS, outside, outsideNS, far, podPort).via(node, remoteNodePort)
	}

	return between(outsideNS, outside, nodeNS, node, serverPort)
}

// via returns the ends with a client that connects to a Service's address.
func (e ends) via(ip string, port uint16) ends {
	e.to = newAddress(ip, port)
	return e
}

// between returns the ends with a client that connects to the server's own address.
func between(client, local, server, remote string, port uint16) ends {
	e := ends{client: client, server: server, local: newAddress(local, clientPort), remote: newAddress(remote, port)}
	e.to = e.remote

	return e
}

// open prepares a test. op runs one operation on a flow; stop closes all sockets.
func open(t test) (op func(flow int) error, stop func(), err error) {
	s := &sockets{ends: t.ends(), flows: t.flowNumber(), firstPort: t.firstPort()}
	switch {
	case t.stream():
		op, err = s.stream(t.name == bench.HostStreamOut)
	case t.connects():
		op, err = s.tcpConnect()
	case t.tcp():
		op, err = s.tcp()
	case strings.HasSuffix(t.name, "_udp_rr"):
		op, err = s.udp()
	case t.name == bench.HostICMP:
		op, err = s.icmp()
	default:
		err = errors.New("no such test")
	}

	if err != nil {
		s.close()
		return nil, nil, err
	}

	return op, s.close, nil
}

// sockets are the open sockets of a test. The methods udp, manyUDP, icmp, tcp, stream and
// tcpConnect open them, and return a function that runs one operation on a flow.
type sockets struct {
	ends      ends
	flows     int
	firstPort int // of the clients
	fds       []int

	// Memory of the operations, which must not allocate.
	buf  [256]byte
	from address
}

func (s *sockets) close() {
	for _, fd := range s.fds {
		closeSocket(fd)
	}
}

// bound opens a socket at one end and binds it.
func (s *sockets) bound(netns string, kind int, a address) (int, error) {
	fd, err := socket(netns, a.family(), kind, 0)
	if err != nil {
		return -1, err
	}

	s.fds = append(s.fds, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}

	return fd, bind(fd, &a)
}

// udp opens connected clients, and one server socket that replies to all of them. An operation is a
// byte to the server and a byte back.
func (s *sockets) udp() (func(int) error, error) {
	if s.flows > maxSockets {
		return s.manyUDP()
	}

	server, err := s.bound(s.ends.server, unix.SOCK_DGRAM, s.ends.remote)
	if err != nil {
		return nil, err
	}

	clients, err := s.clients(unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}

	data := s.buf[:1]

	return func(flow int) error {
		if err := send(clients[flow], data, nil); err != nil {
			return err
		}

		if err := receive(server, data, &s.from); err != nil {
			return err
		}

		if err := send(server, data, &s.from); err != nil {
			return err
		}

		err := receive(clients[flow], data, nil)

		return err
	}, nil
}

// manyUDP is udp with more flows than sockets: a flow is a pair of one of portsEach clients, which
// are not connected, and one of several server sockets.
func (s *sockets) manyUDP() (func(int) error, error) {
	var (
		clients, servers []int
		remotes          []address
	)

	for i := range portsEach {
		local := s.ends.local
		binary.BigEndian.PutUint16(local.raw[2:], uint16(s.firstPort+i))

		fd, err := s.bound(s.ends.client, unix.SOCK_DGRAM, local)
		if err != nil {
			return nil, err
		}

		clients = append(clients, fd)
	}

	for i := range (s.flows + portsEach - 1) / portsEach {
		remote := s.ends.remote
		binary.BigEndian.PutUint16(remote.raw[2:], uint16(serverPort+i))

		fd, err := s.bound(s.ends.server, unix.SOCK_DGRAM, remote)
		if err != nil {
			return nil, err
		}

		servers, remotes = append(servers, fd), append(remotes, remote)
	}

	data := s.buf[:1]

	return func(flow int) error {
		client, server := clients[flow%portsEach], servers[flow/portsEach]
		if err := send(client, data, &remotes[flow/portsEach]); err != nil {
			return err
		}

		if err := receive(server, data, &s.from); err != nil {
			return err
		}

		if err := send(server, data, &s.from); err != nil {
			return err
		}

		return receive(client, data, nil)
	}, nil
}

// clients opens and connects a socket per flow, each with its own port.
func (s *sockets) clients(kind int) ([]int, error) {
	var fds []int

	for i := range s.flows {
		local := s.ends.local.plus(i / portsEach)
		binary.BigEndian.PutUint16(local.raw[2:], uint16(s.firstPort+i%portsEach))

		fd, err := s.bound(s.ends.client, kind, local)
		if err != nil {
			return nil, err
		}

		if err := connect(fd, &s.ends.remote); err != nil {
			return nil, err
		}

		fds = append(fds, fd)
	}

	return fds, nil
}

// icmp opens a raw socket outside. An operation is an echo request that the node's kernel answers.
// A flow is an echo identifier.
func (s *sockets) icmp() (func(int) error, error) {
	fd, err := socket(s.ends.client, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return nil, err
	}

	s.fds = append(s.fds, fd)
	// A set bit rejects a type. See icmp(4), ICMP_FILTER.
	const icmpFilter, echoReply = 1, 0
	if err := unix.SetsockoptInt(fd, unix.SOL_RAW, icmpFilter, ^(1 << echoReply)); err != nil {
		return nil, fmt.Errorf("set ICMP_FILTER: %w", err)
	}

	to := s.ends.remote
	binary.BigEndian.PutUint16(to.raw[2:], 0)

	if err := connect(fd, &to); err != nil {
		return nil, err
	}

	requests := make([][]byte, s.flows)
	for i := range requests {
		requests[i] = echoRequest(uint16(s.firstPort + i))
	}

	return func(flow int) error {
		if err := send(fd, requests[flow], nil); err != nil {
			return err
		}

		err := receive(fd, s.buf[:], nil)

		return err
	}, nil
}

// echoRequest returns an ICMP echo request of 64 bytes (RFC 792): type, code, checksum, identifier,
// sequence number, and data.
func echoRequest(id uint16) []byte {
	p := make([]byte, 64)
	p[0] = 8 // type: echo
	binary.BigEndian.PutUint16(p[4:], id)
	binary.BigEndian.PutUint16(p[6:], 1) // sequence number

	var sum uint32
	for i := 0; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}

	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[2:], ^uint16(sum+sum>>16))

	return p
}
