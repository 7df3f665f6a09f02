package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A listener with SYN cookies owns the ACK that returns a cookie, and no other.
func TestGateway_synCookie(t *testing.T) {
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			n := newNode(t)
			n.addr(t, "eth0", fmt.Sprintf("%s/%d", f.node, f.node.BitLen()-8))

			err := n.NeighAdd(&netlink.Neigh{LinkIndex: n.uplink, IP: f.foreign.AsSlice(), HardwareAddr: peerMAC, State: unix.NUD_PERMANENT})
			if err != nil {
				t.Fatal(err)
			}

			n.must(t, func() error {
				// 2: always, not only when the listener's queue is full
				if err := os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte("2"), 0); err != nil {
					return err
				}

				l, err := listen(f.node, listenPort, func(int) error { return nil })
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}

				return err
			})
			g := n.open(t)
			openGate(t, g, SocketKey{protoTCP, listenPort})
			cookie := n.cookie(t, f)
			ack := func(number uint32) []byte { return f.segment(4000, 2, number, flagACK) }
			runTests(t, n, g, []packetTest{
				one("the cookie", ack(cookie+1), retNext, "host_socket"),
				one("no cookie", ack((cookie+1)^0x00f00000), retRedirect, "snat_port"),
				one("a reset with the cookie", f.segment(4000, 2, cookie+1, flagACK|flagRST), retRedirect, "snat_port"),
				one("from another port", f.segment(4001, 2, cookie+1, flagACK), retRedirect, "snat_port"),
				one("quoted", f.rx(f.remote, f.node, f.icmp, f.icmpError(f.unreach, 0,
					f.ip(f.node, f.foreign, protoTCP, tcp(listenPort, 4000, flagACK)))), retRedirect, "icmp_error_ovn"),
			})
		})
	}
}

// cookie starts a connection and returns the sequence number of the reply.
func (n *node) cookie(t *testing.T, f family) uint32 {
	t.Helper()
	wire := n.tap(t, "wire0")
	wire.send(t, f.segment(4000, 1, 0, flagSYN))

	l4 := 14 + 20
	if !f.node.Is4() {
		l4 = 14 + 40
	}

	var number uint32

	wire.await(t, func(b []byte, _ uint16) bool {
		if len(b) < l4+20 || binary.BigEndian.Uint16(b[l4:]) != listenPort || b[l4+13] != flagSYN|flagACK {
			return false
		}

		number = binary.BigEndian.Uint32(b[l4+4:])

		return true
	})

	return number
}

// segment returns a TCP segment from foreign to the listener. The kernel's own stack receives it.
func (f family) segment(sport uint16, number, ack uint32, flags uint8) []byte {
	b := join(be16(sport), be16(listenPort), be32(number), be32(ack), []byte{5 << 4, flags}, be16(1024), be32(0))
	pseudo := join(f.foreign.AsSlice(), f.node.AsSlice(), be32(uint32(len(b))), be32(protoTCP), b)
	binary.BigEndian.PutUint16(b[16:], checksum(pseudo))

	return f.rx(f.foreign, f.node, protoTCP, b)
}

// OVN's packets to an address of the host, after NAT, go to the host's stack, whatever the frame's
// MAC.
func TestGateway_hairpinReachesHost(t *testing.T) {
	n := newLiveNode(t)
	attach(t, n, n.open(t))
	host, ovn := n.hostUDP(t, 53), n.tap(t, "ovn0")
	src := netip.MustParseAddr("172.30.0.99")
	ovn.send(t, v4.tx(src, v4.node, protoUDP, udp(50000, 53, 'u')))
	expectUDP(t, host, "u")

	if got := counts(t, n.pinDir)["hairpin"]; got != 1 {
		t.Errorf("%d packets by hairpin", got)
	}
}
