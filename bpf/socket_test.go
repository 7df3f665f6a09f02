package bpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	listenPort = 50001 // in the SNAT range, though reserved for OVN
	deferPort  = 50003
	udpPort    = 50002
)

// hostConn is a TCP connection whose server is a socket of the host in the range.
type hostConn struct {
	client, server net.Conn
	port           uint16 // the client's
}

func (c *hostConn) close() error { return errors.Join(c.server.Close(), c.client.Close()) }

func listen(addr netip.Addr, port uint16, control func(fd int) error) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = control(int(fd)) }), err)
	}}

	return lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, port).String())
}

func connect(l net.Listener) (*hostConn, error) {
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}

	server, err := l.Accept()
	if err != nil {
		return nil, err
	}

	return &hostConn{client, server, uint16(client.LocalAddr().(*net.TCPAddr).Port)}, nil
}

// timeWait ends the connection so that its server's side lingers.
func (c *hostConn) timeWait() error {
	if err := c.server.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}

	if _, err := io.ReadAll(c.client); err != nil {
		return err
	}

	if err := c.client.Close(); err != nil {
		return err
	}

	_, _ = io.ReadAll(c.server)

	return c.server.Close()
}

func TestGateway_hostSocket(t *testing.T) {
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			n := newNode(t)
			n.addr(t, "eth0", fmt.Sprintf("%s/%d", f.node, f.node.BitLen()-8))
			g := n.open(t)
			testTCPSockets(t, n, g, f)
			testDeferredSocket(t, n, g, f)
			testUDPSocket(t, n, g, f)
		})
	}
}

func testTCPSockets(t *testing.T, n *node, g *Gateway, f family) {
	var (
		l          net.Listener
		live, dead *hostConn
	)

	n.must(t, func() (err error) {
		if l, err = listen(f.node, listenPort, func(int) error { return nil }); err != nil {
			return err
		}

		if live, err = connect(l); err != nil {
			return err
		}

		if dead, err = connect(l); err != nil {
			return err
		}

		return dead.timeWait()
	})

	defer l.Close()
	defer live.close()

	segment := func(sport uint16, flags uint8) []byte {
		return f.rx(f.node, f.node, protoTCP, tcp(sport, listenPort, flags))
	}
	quoted := func(sport uint16) []byte {
		about := f.ip(f.node, f.node, protoTCP, tcp(listenPort, sport, flagACK))
		return f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.unreach, 1, about))
	}

	runTests(t, n, g, []packetTest{
		one("tcp, gate closed", segment(live.port, flagACK), retRedirect, "snat_port"),
		one("syn, gate closed", segment(live.port, flagSYN), retNext, "snat_syn"),
	})
	openGate(t, g, SocketKey{protoTCP, listenPort})
	runTests(t, n, g, []packetTest{
		one("established", segment(live.port, flagACK), retNext, "host_socket"),
		one("time wait", segment(dead.port, flagACK), retNext, "host_socket"),
		one("listener alone", segment(9, flagACK), retRedirect, "snat_port"),
		one("syn", segment(9, flagSYN), retNext, "snat_syn"),
		one("error about established", quoted(live.port), retNext, "icmp_error_host"),
		one("error about an unowned port", quoted(9), retRedirect, "icmp_error_ovn"),
	})
	openGate(t, g)
	runTests(t, n, g, []packetTest{one("gate closed again", segment(live.port, flagACK), retRedirect, "snat_port")})
}

// A listener that waits for data keeps a connection as a request socket.
func testDeferredSocket(t *testing.T, n *node, g *Gateway, f family) {
	var (
		l      net.Listener
		client net.Conn
	)

	n.must(t, func() (err error) {
		l, err = listen(f.node, deferPort, func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 60)
		})
		if err != nil {
			return err
		}

		client, err = net.Dial("tcp", l.Addr().String())

		return err
	})

	defer l.Close()
	defer client.Close()

	openGate(t, g, SocketKey{protoTCP, deferPort})

	port := uint16(client.LocalAddr().(*net.TCPAddr).Port)
	runTests(t, n, g, []packetTest{
		one("request", f.rx(f.node, f.node, protoTCP, tcp(port, deferPort, flagACK)), retNext, "host_socket"),
	})
}

func testUDPSocket(t *testing.T, n *node, g *Gateway, f family) {
	var c net.PacketConn

	n.must(t, func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(f.node, udpPort).String())
		return err
	})

	defer c.Close()

	packet := f.rx(f.remote, f.node, protoUDP, udp(53, udpPort))
	openGate(t, g, SocketKey{protoTCP, udpPort})
	runTests(t, n, g, []packetTest{one("udp, gate open for tcp", packet, retRedirect, "snat_port")})
	openGate(t, g, SocketKey{protoUDP, udpPort}, SocketKey{protoUDP, udpPort + 1})
	runTests(t, n, g, []packetTest{
		one("udp", packet, retNext, "host_socket"),
		one("udp, unowned port", f.rx(f.remote, f.node, protoUDP, udp(53, udpPort+1)), retRedirect, "snat_port"),
	})
}

// TestHostConnection_keepsItsPackets covers frontends at the host's address, whose port a
// connection of the host uses. Listeners and unconnected sockets do not win against a frontend.
func TestHostConnection_keepsItsPackets(t *testing.T) {
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			n := newNode(t)
			n.addr(t, "eth0", fmt.Sprintf("%s/%d", f.node, f.node.BitLen()-8))
			testHostConnections(t, n, n.open(t), f)
		})
	}
}

func testHostConnections(t *testing.T, n *node, g *Gateway, f family) {
	const front, hosted, sendPort, udpFront, udpOpen = 30080, 30081, 30082, 30053, 30054

	var (
		l, h              net.Listener
		live, dead, local *hostConn
		udpPeer, udpAny   net.PacketConn
	)

	n.must(t, func() (err error) {
		if l, err = listen(f.node, front, func(int) error { return nil }); err != nil {
			return err
		}

		if h, err = listen(f.node, hosted, func(int) error { return nil }); err != nil {
			return err
		}

		if live, err = connect(l); err != nil {
			return err
		}

		if local, err = connect(h); err != nil {
			return err
		}

		if dead, err = connect(l); err != nil {
			return err
		}

		if udpPeer, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.node, udpFront)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.node, 53))); err != nil {
			return err
		}

		if udpAny, err = net.ListenPacket("udp", netip.AddrPortFrom(f.node, udpOpen).String()); err != nil {
			return err
		}

		return dead.timeWait()
	})

	for _, c := range []io.Closer{l, h, live.server, live.client, local.server, local.client, udpPeer, udpAny} {
		defer c.Close()
	}

	n.must(t, func() error { return sending(t, f, sendPort) })

	owners := map[verdict.ServiceKey]verdict.ServiceOwner{{Addr: f.node, Proto: protoTCP, Port: hosted}: verdict.ServiceHost}
	for _, port := range []uint16{front, sendPort} {
		owners[verdict.ServiceKey{Addr: f.node, Proto: protoTCP, Port: port}] = verdict.ServiceOVN
	}

	for _, port := range []uint16{udpFront, udpOpen} {
		owners[verdict.ServiceKey{Addr: f.node, Proto: protoUDP, Port: port}] = verdict.ServiceOVN
	}

	if err := g.SyncServices(owners); err != nil {
		t.Fatal(err)
	}

	segment := func(sport, dport uint16, flags uint8) []byte {
		return f.rx(f.node, f.node, protoTCP, tcp(sport, dport, flags))
	}
	about := f.ip(f.node, f.node, protoTCP, tcp(front, live.port, flagACK))
	quoted := f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.unreach, 1, about))
	tests := []packetTest{
		one("established", segment(live.port, front, flagACK), retNext, "host_connection"),
		one("established, syn", segment(live.port, front, flagSYN), retNext, "host_connection"),
		one("established, rst", segment(live.port, front, flagRST), retNext, "host_connection"),
		one("error about established", quoted, retNext, "icmp_error_host"),
		one("time wait", segment(dead.port, front, flagACK), retNext, "host_connection"),
		one("time wait, syn", segment(dead.port, front, flagSYN), retRedirect, "service"),
		one("listener, syn", segment(9, front, flagSYN), retRedirect, "service"),
		one("listener, ack", segment(9, front, flagACK), retRedirect, "service"),
		one("syn sent, answer", f.rx(f.foreign, f.node, protoTCP, tcp(443, sendPort, flagSYN|flagACK)), retNext, "host_connection"),
		one("syn sent, simultaneous open", f.rx(f.foreign, f.node, protoTCP, tcp(443, sendPort, flagSYN)), retNext, "host_connection"),
		one("syn sent, another peer", f.rx(f.foreign, f.node, protoTCP, tcp(444, sendPort, flagSYN)), retRedirect, "service"),
		one("frontend of a host socket", segment(local.port, hosted, flagACK), retNext, "service_host"),
		one("udp", f.rx(f.node, f.node, protoUDP, udp(53, udpFront)), retNext, "host_connection"),
		one("udp, another peer", f.rx(f.node, f.node, protoUDP, udp(54, udpFront)), retRedirect, "service"),
		one("udp, unconnected socket", f.rx(f.remote, f.node, protoUDP, udp(53, udpOpen)), retRedirect, "service"),
	}
	runTests(t, n, g, tests)
}

// sending begins a connection from the port to f.foreign, which does not answer.
func sending(t *testing.T, f family, port uint16) error {
	domain := unix.AF_INET

	var at, to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(f.node.AsSlice()), Port: int(port)}, &unix.SockaddrInet4{Addr: [4]byte(f.foreign.AsSlice()), Port: 443}
	if f.node.Is6() {
		domain, at, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: f.node.As16(), Port: int(port)}, &unix.SockaddrInet6{Addr: f.foreign.As16(), Port: 443}
	}

	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}

	t.Cleanup(func() { unix.Close(fd) })

	if err := unix.Bind(fd, at); err != nil {
		return err
	}

	if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w, want EINPROGRESS", err)
	}

	return nil
}

func openGate(t *testing.T, g *Gateway, keys ...SocketKey) {
	t.Helper()

	if err := g.SyncHostSockets(keys); err != nil {
		t.Fatal(err)
	}
}

func TestGateway_SyncHostSockets_protocol(t *testing.T) {
	g := newNode(t).open(t)
	if err := g.SyncHostSockets([]SocketKey{{Proto: protoSCTP, Port: 1}}); err == nil {
		t.Error("no error for SCTP")
	}
}
