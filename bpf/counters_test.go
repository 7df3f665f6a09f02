package bpf

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestReadCounters(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	packet := v4.rx(v4.remote, v4.node, protoUDP, udp(53, 50000, 1, 2, 3))
	for range 3 {
		if _, _, err := n.send(g, step{hook: uplinkIngress, packet: packet}); err != nil {
			t.Fatal(err)
		}
	}

	g.Close() // the CLI reads without a gateway of its own

	got, err := ReadCounters(n.pinDir)
	if err != nil {
		t.Fatal(err)
	}

	if len(got) != verdict.ReasonCount {
		t.Errorf("%d counters, want %d", len(got), verdict.ReasonCount)
	}

	if !slices.IsSortedFunc(got, func(a, b Counter) int {
		return strings.Compare(a.Direction+a.Port+a.Reason, b.Direction+b.Port+b.Reason)
	}) {
		t.Error("counters are not sorted")
	}

	i := slices.IndexFunc(got, func(c Counter) bool { return c.Reason == "snat_port" })

	want := Counter{Port: "ovn", Direction: "rx", Verdict: "ovn", Reason: "snat_port", Packets: 3, Bytes: uint64(3 * len(packet))}
	if diff := cmp.Diff(want, got[i]); diff != "" {
		t.Errorf("counter (-want +got):\n%s", diff)
	}
}

// A GSO packet counts as its segments on the wire, each with its headers.
func TestReadCounters_gsoBytes(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	payload := make([]byte, 300)
	options := tcp(80, 22, flagACK, append([]byte{1, 1, 1, 1}, payload...)...)
	options[12] = 6 << 4

	tunnel := func(f family, inner []byte) []byte {
		return f.rx(f.remote, f.node, protoUDP, udp(50000, 6081, join([]byte{1, 0, 0x65, 0x58, 0, 0, 1, 0}, make([]byte, 4), inner)...))
	}
	for _, tt := range []struct {
		name   string
		packet []byte
		header int
	}{
		{"tcp v4", v4.rx(v4.remote, v4.node, protoTCP, tcp(80, 22, flagACK, payload...)), 14 + 20 + 20},
		{"tcp v6", v6.rx(v6.remote, v6.node, protoTCP, tcp(80, 22, flagACK, payload...)), 14 + 40 + 20},
		{"tcp with options", v4.rx(v4.remote, v4.node, protoTCP, options), 14 + 20 + 24},
		{"udp", v4.rx(v4.remote, v4.node, protoUDP, udp(80, 22, payload...)), 14 + 20 + 8},
		{"geneve", tunnel(v4, v6.rx(v6.pod, v6.pod, protoTCP, tcp(80, 22, flagACK, payload...))), 14 + 20 + 8 + 12 + 14 + 40 + 20},
		{"geneve of something else", tunnel(v6, ether(nodeMAC, peerMAC, 0x0806, arpPacket(1, v4.pod, v4.pod))), 14 + 40 + 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := sumBytes(t, n.pinDir)
			if _, _, err := n.send(g, step{hook: uplinkIngress, packet: tt.packet, gso: 3}); err != nil {
				t.Fatal(err)
			}

			if got, want := sumBytes(t, n.pinDir)-before, uint64(len(tt.packet)+2*tt.header); got != want {
				t.Errorf("counted %d bytes, want %d", got, want)
			}
		})
	}
}

func sumBytes(t *testing.T, pinDir string) (sum uint64) {
	t.Helper()

	counters, err := ReadCounters(pinDir)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range counters {
		sum += c.Bytes
	}

	return sum
}

func TestReadCounters_withoutGateway(t *testing.T) {
	if _, err := ReadCounters(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that nothing exists", err)
	}
}
