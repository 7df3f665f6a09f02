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

func TestHostSocket(t *testing.T) {
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
	var l net.Listener
	var live, dead *hostConn
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
	var l net.Listener
	var client net.Conn
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

func openGate(t *testing.T, g *Gateway, keys ...SocketKey) {
	t.Helper()
	if err := g.SyncHostSockets(keys); err != nil {
		t.Fatal(err)
	}
}

func TestSyncHostSocketsProtocol(t *testing.T) {
	g := newNode(t).open(t)
	if err := g.SyncHostSockets([]SocketKey{{Proto: protoSCTP, Port: 1}}); err == nil {
		t.Error("no error for SCTP")
	}
}
