package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestRawSocketClaimsProtocol checks that a protocol belongs to the host while a raw socket for it
// is open, whether opened before or after the gateway started.
func TestRawSocketClaimsProtocol(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	open := func(domain, proto int) (shut func()) {
		t.Helper()

		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			t.Fatal(err)
		}

		return func() { unix.Close(fd) }
	}

	var all []verdict.NSKey
	for _, proto := range []uint8{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, 89, 112} {
		all = append(all, verdict.NSKey{Remote: netip.IPv4Unspecified(), Proto: proto}, verdict.NSKey{Remote: netip.IPv6Unspecified(), Proto: proto})
	}

	has := func(what string, want ...verdict.NSKey) {
		t.Helper()

		e, err := bpf.OpenExplainer(r.s.PinDir)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()

		r.gw.Trigger()
		testnode.Eventually(t, what, func() error {
			got, err := e.Entries(bpf.Keys{Protos: all})
			if err != nil || len(got.HostProtos) != len(want) || slices.ContainsFunc(want, func(k verdict.NSKey) bool { return !got.HostProtos[k] }) {
				return fmt.Errorf("the programs have %v, want %v, error %w", got.HostProtos, want, err)
			}

			return nil
		})
	}
	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()

	shutVRRP, shutPing := open(unix.AF_INET, 112), open(unix.AF_INET, unix.IPPROTO_ICMP)
	defer shutPing()

	r.start()
	has("of before", verdict.NSKey{Remote: any4, Proto: 112})

	shutOSPF := open(unix.AF_INET6, 89)

	has("made while it runs", verdict.NSKey{Remote: any4, Proto: 112}, verdict.NSKey{Remote: any6, Proto: 89})
	shutVRRP()
	has("one closed", verdict.NSKey{Remote: any6, Proto: 89})
	shutOSPF()
	has("all closed")
}

// TestFlowsHaveProtocols checks that flows get the protocols of raw sockets, and keep them while
// the sockets cannot be listed.
func TestFlowsHaveProtocols(t *testing.T) {
	testnode.Netns(t)

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 112)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)

	u := &hostUse{s: Settings{Wiring: Wiring{Layout: verdict.Bridged, Backend: OpenFlow}}, log: slog.New(slog.DiscardHandler), record: newRecorder(slog.New(slog.DiscardHandler))}
	u.syncProtos(nil)

	if want := (verdict.NSKey{Remote: netip.IPv4Unspecified(), Proto: 112}); !slices.Contains(u.protos, want) {
		t.Errorf("protocols %v, want %v among them", u.protos, want)
	}
}

// TestDedicatedWithholdsNothing checks layout dedicated, where the node's address belongs to OVN
// alone. No port or protocol of the host is withheld from pods.
func TestDedicatedWithholdsNothing(t *testing.T) {
	udp, err := net.ListenPacket("udp", ":51820")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 112)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)

	for layout, has := range map[verdict.Layout]bool{verdict.Direct: true, verdict.Bridged: true, verdict.Dedicated: false} {
		s := Settings{Wiring: Wiring{Layout: layout}, Cluster: Cluster{SNATPorts: cluster.PortRange{First: 49152, Last: 65535}}}

		protos, err := readHostProtos(s)
		if err != nil {
			t.Fatal(err)
		}

		if got := len(lookupPorts(s)) > 0; got != has {
			t.Errorf("%s: gated %v", layout, lookupPorts(s))
		}

		if got := len(protos) > 0; got != has {
			t.Errorf("%s: protocols of the host %v", layout, protos)
		}
	}
}
