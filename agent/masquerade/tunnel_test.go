package masquerade

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestTunnels_dropsPodsPackets has a node between pods and a peer. It sends packets to the Geneve port
// of addresses in and outside of the allowed networks.
func TestTunnels_dropsPodsPackets(t *testing.T) {
	n := newNode(t, remotePods+`
world:addr add 192.0.2.3/24 dev w0
world:addr add 192.0.2.20/24 dev w0
world:addr add 2001:db8::3/64 dev w0 nodad
world:addr add 2001:db8::20/64 dev w0 nodad
`)
	syncs(t, config)

	// The marker is sent after each packet on the same way. When it arrives, a packet that has not
	// arrived was dropped.
	const marker = 6082

	outside, own := "/proc/"+n.world+"/ns/net", "/proc/self/ns/net"
	pod := listen(t, "/proc/"+n.pods+"/ns/net", netip.MustParseAddrPort("[::]:4000"))

	for _, tc := range []struct {
		to      string
		at      string // network namespace
		arrives bool
	}{
		{"192.0.2.1", outside, true},
		{"192.0.2.3", outside, false}, // another node, in the range
		{"192.0.2.20", outside, false},
		{"10.244.2.5", outside, true},
		{"192.0.2.2", own, false},
		{"10.244.1.2", own, false},
		{"2001:db8::1", outside, true},
		{"2001:db8::3", outside, false},
		{"2001:db8::20", outside, false},
		{"fd00:10:244:2::5", outside, true},
		{"2001:db8::2", own, false},
		{"fd00:10:244:1::2", own, false},
	} {
		to := netip.MustParseAddr(tc.to)
		tunnel, marked := listen(t, tc.at, netip.AddrPortFrom(to, model.TunnelPort)), listen(t, tc.at, netip.AddrPortFrom(to, marker))

		for _, what := range []string{"first packet", "reply"} {
			if what == "reply" { // the peer begins the connection
				from := netip.MustParseAddrPort("10.244.1.5:4000")
				if to.Is6() {
					from = netip.MustParseAddrPort("[fd00:10:244:1::5]:4000")
				}

				sendFrom(t, tunnel, from)

				if !receive(t, pod, 10*time.Second) {
					t.Fatalf("no packet from %s arrives at the pod", to)
				}
			}

			sendFrom(t, pod, netip.AddrPortFrom(to, model.TunnelPort))
			sendFrom(t, pod, netip.AddrPortFrom(to, marker))

			if !receive(t, marked, 10*time.Second) {
				t.Fatalf("%s: the marker does not arrive", to)
			}

			if got := receive(t, tunnel, 50*time.Millisecond); got != tc.arrives {
				t.Errorf("%s to %s arrives: %t, want %t", what, to, got, tc.arrives)
			}
		}
	}
}

func listen(t *testing.T, netns string, at netip.AddrPort) (conn *net.UDPConn) {
	t.Helper()

	err := link.InNetns(netns, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })

	return conn
}

func sendFrom(t *testing.T, conn *net.UDPConn, to netip.AddrPort) {
	t.Helper()

	if _, err := conn.WriteToUDPAddrPort([]byte("x"), to); err != nil {
		t.Fatalf("send to %s: %v", to, err)
	}
}

// receive reports whether a packet arrives within the time.
func receive(t *testing.T, conn *net.UDPConn, within time.Duration) bool {
	t.Helper()

	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}

	_, _, err := conn.ReadFromUDPAddrPort(make([]byte, 100))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}

	return err == nil
}
