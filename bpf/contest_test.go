package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

const (
	wireguard = 51820 // inside the SNAT range
	protoVRRP = 112
	protoOSPF = 89
	protoPIM  = 103
	protoESP  = 50
)

// contest is a host and pods that try to take over the host's exchanges with a peer, on real
// devices.
type contest struct {
	*node
	g    *Gateway
	gate *Gate
	f    family
	wire *tap
	ovn  *tap
	seq  uint32 // makes each payload unique
}

// newContest attaches the gate's programs, so that sockets are seen when they are created.
func newContest(t *testing.T, f family) *contest {
	t.Helper()
	opts := CgroupOptions{CgroupPath: testnode.Cgroup(t)}
	c := &contest{node: newNode(t), f: f}
	c.addr(t, "eth0", fmt.Sprintf("%s/%d", f.node, f.node.BitLen()-8))
	c.g = c.open(t)
	opts.PinDir = c.pinDir
	c.must(t, func() (err error) {
		opts.NetnsCookie, err = netnsCookie()
		return err
	})

	var err error
	if c.gate, err = LoadGate(opts); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.gate.Close() })

	if err := c.gate.Attach(); err != nil {
		t.Fatal(err)
	}

	attach(t, c.node, c.g)
	c.wire, c.ovn = c.tap(t, "wire0"), c.tap(t, "ovn0")

	return c
}

// socket opens an unconnected host socket on any address.
func (c *contest) socket(t *testing.T, typ int, proto uint8, port uint16) *tap {
	t.Helper()

	s := &tap{}

	c.must(t, func() (err error) {
		domain, any := unix.AF_INET, netip.IPv4Unspecified()
		if c.f.node.Is6() {
			domain, any = unix.AF_INET6, netip.IPv6Unspecified()
		}

		if s.fd, err = unix.Socket(domain, typ|unix.SOCK_CLOEXEC, int(proto)); err != nil {
			return err
		}

		tv := unix.Timeval{Sec: 10}

		err = unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
		if port != 0 {
			err = errors.Join(err, unix.Bind(s.fd, (&client{}).sockaddr(netip.AddrPortFrom(any, port))))
		}

		return err
	})
	t.Cleanup(func() { unix.Close(s.fd) })

	return s
}

// payload returns a unique payload, so that old replies are recognized.
func (c *contest) payload() []byte {
	c.seq++
	return join(be32(0x600df00d), be32(c.seq))
}

// pod sends a packet of a pod through OVN, with proto, to the peer. It returns the program's
// result.
func (c *contest) pod(t *testing.T, proto uint8, l4 []byte) uint32 {
	t.Helper()

	ret, _, err := c.send(c.g, tx(c.f.tx(c.f.node, c.f.remote, proto, l4), 0, ""))
	if err != nil {
		t.Fatal(err)
	}

	return ret
}

// receives fails unless the host's socket receives the peer's packet, which ends in payload.
func (c *contest) receives(t *testing.T, what string, s *tap, proto uint8, l4, payload []byte) {
	t.Helper()
	c.wire.send(t, c.f.rx(c.f.remote, c.f.node, proto, c.f.sum(proto, l4)))

	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil {
			t.Errorf("%s: the host does not get what its peer sends: %v", what, err)
			return
		}

		if n >= len(payload) && string(buf[n-len(payload):n]) == string(payload) {
			return
		}
	}
}

// sum returns a packet from remote to node with the checksum of its protocol.
func (f family) sum(proto uint8, l4 []byte) []byte {
	at := map[uint8]int{protoUDP: 6, protoICMP: 2, protoICMPv6: 2}[proto]
	if at == 0 {
		return l4
	}

	var pseudo []byte
	if proto != protoICMP {
		pseudo = join(f.remote.AsSlice(), f.node.AsSlice(), be32(uint32(len(l4))), []byte{0, 0, 0, proto})
	}

	b := append([]byte{}, l4...)
	binary.BigEndian.PutUint16(b[at:], 0)
	binary.BigEndian.PutUint16(b[at:], checksum(join(pseudo, b, make([]byte, len(b)%2))))

	return b
}

// sweepEnv selects every port and identifier instead of one in 61, because a VM is slow.
const sweepEnv = "OVN_EBPF_SWEEP"

func sweep() int {
	if os.Getenv(sweepEnv) != "" {
		return 1
	}

	return 61
}

// pings makes a pod ping the peer with the identifiers.
func (c *contest) pings(t *testing.T) {
	t.Helper()

	for id := 0; id < 1<<16; id += sweep() {
		c.pod(t, c.f.icmp, c.f.ping(uint16(id)))
	}
}

// protocols returns all protocols without ports, except ICMP, those that IPv6 reads as its own
// headers, and those that the kernel handles before any socket.
func (f family) protocols() (list []uint8) {
	headers := map[uint8]bool{0: true, 43: true, 44: true, 51: true, 59: true, 60: true, 135: true, 139: true, 140: true, 253: true, 254: true}

	for p := 1; p < 256; p++ {
		switch proto := uint8(p); {
		case proto == protoTCP, proto == protoUDP, proto == protoSCTP, proto == protoICMP, proto == protoICMPv6:
		case f.node.Is6() && headers[proto]:
		default:
			list = append(list, proto)
		}
	}

	return list
}

// Whatever a pod sends before, during or after the host opens its sockets, the host receives what
// its peers send. The pod receives only packets that the host does not claim.
func TestGateway_podsTakeNothing(t *testing.T) {
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			c := newContest(t, f)
			t.Run("udp", c.udp)
			t.Run("ping", c.ping)
			t.Run("protocols", c.protos)
		})
	}
}

func (c *contest) udp(t *testing.T) {
	fromPod := udp(wireguard, wireguard, 1, 2, 3, 4)
	answers := func(p []byte) []byte { return udp(wireguard, wireguard, p...) }

	if ret := c.pod(t, protoUDP, fromPod); ret != retRedirect {
		t.Errorf("from a port that the host does not use: returned %d", int32(ret))
	}

	s := c.socket(t, unix.SOCK_DGRAM, 0, wireguard)
	p := c.payload()
	c.receives(t, "a pod sent before the host's socket was there", s, protoUDP, answers(p), p)

	if ret := c.pod(t, protoUDP, fromPod); ret != retDrop {
		t.Errorf("from the host's port: returned %d, want %d", int32(ret), retDrop)
	}

	p = c.payload()
	c.receives(t, "a pod sends while the host's socket is there", s, protoUDP, answers(p), p)

	for port := 49152; port < 1<<16; port += sweep() { // one datagram from each port, to the same peer
		c.pod(t, protoUDP, udp(uint16(port), wireguard, 1))
	}

	p = c.payload()
	c.receives(t, "a pod sent from every port", s, protoUDP, answers(p), p)
	unix.Close(s.fd)
	s.fd = -1

	if ret := c.pod(t, protoUDP, fromPod); ret != retRedirect {
		t.Errorf("from the port of a socket that is closed: returned %d", int32(ret))
	}
}

func (c *contest) ping(t *testing.T) {
	c.pings(t)

	s := c.socket(t, unix.SOCK_RAW, c.f.icmp, 0)
	for _, id := range []uint16{0, 1, 255, 256, 1234, 32767, 32768, 49151, 49152, 51820, 65534, 65535} {
		p := c.payload()
		c.pod(t, c.f.icmp, c.f.ping(id)) // the table does not hold all
		pong := join(c.f.pong(id)[:8], p)
		c.receives(t, fmt.Sprintf("a pod asked by every identifier, reply %d", id), s, c.f.icmp, pong, p)
		c.ovn.expect(t, c.f.rx(c.f.remote, c.f.node, c.f.icmp, c.f.sum(c.f.icmp, pong)))
		about := c.f.icmpError(c.f.unreach, 1, c.f.ip(c.f.node, c.f.remote, c.f.icmp, join(c.f.ping(id)[:8], p)))
		c.receives(t, fmt.Sprintf("an error about ping %d", id), s, c.f.icmp, about, p)
		c.ovn.expect(t, c.f.rx(c.f.remote, c.f.node, c.f.icmp, c.f.sum(c.f.icmp, about)))
	}
}

func (c *contest) protos(t *testing.T) {
	for _, proto := range c.f.protocols() {
		if ret := c.pod(t, proto, c.payload()); ret != retRedirect {
			t.Errorf("protocol %d, which the host does not use: returned %d", proto, int32(ret))
		}

		s := c.socket(t, unix.SOCK_RAW, proto, 0)
		p := c.payload()
		c.receives(t, fmt.Sprintf("protocol %d, a pod sent before", proto), s, proto, p, p)

		if ret := c.pod(t, proto, c.payload()); ret != retDrop {
			t.Errorf("protocol %d of the host's: returned %d, want %d", proto, int32(ret), retDrop)
		}

		p = c.payload()
		c.receives(t, fmt.Sprintf("protocol %d, a pod sends meanwhile", proto), s, proto, p, p)

		if t.Failed() {
			return
		}
	}
}
