package bpf

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// mixed sends one of each frame of TestReadCounters_exact's mix and returns the frames with their
// expected reasons.
func mixed(t *testing.T, n *node, layout verdict.Layout) []parcel {
	t.Helper()

	var sent []parcel

	each := func(by sender, parcels func(family) []parcel) {
		for _, p := range slices.Concat(parcels(v4), parcels(v6)) {
			if err := by(p.header, p.frame); err != nil {
				t.Fatalf("send for %s: %v", p.reason, err)
			}

			sent = append(sent, p)
		}
	}
	each(packetSender(t, n.peer, n.peer.up(t, "wire0")), fromWire)

	switch layout {
	case verdict.Direct:
		each(packetSender(t, n.peer, n.peer.up(t, "ovn0")), fromOVN)
	case verdict.Bridged:
		each(packetSender(t, n.namespace, n.bridge), fromHost)
		fallthrough
	default:
		each(packetSender(t, n.namespace, n.uplink), fromOVN)
	}

	return sent
}

func (n *node) monitor(t *testing.T, o MonitorOptions) *Monitor {
	t.Helper()

	var m *Monitor

	n.must(t, func() (err error) {
		m, err = OpenMonitor(n.pinDir, o)
		return err
	})
	t.Cleanup(func() { m.Close() })

	return m
}

// next reads n samples.
func (m *Monitor) next(t *testing.T, n int) (out []Sample) {
	t.Helper()
	m.SetDeadline(time.Now().Add(10 * time.Second))

	for range n {
		s, err := m.Read()
		if err != nil {
			t.Fatalf("sample %d of %d: %v", len(out)+1, n, err)
		}

		out = append(out, s)
	}

	return out
}

// Samples match the programs' decisions in every layout. The counters are the same as without a
// monitor.
func TestMonitor(t *testing.T) {
	for _, layout := range corpusLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			needTCX(t)
			n, g := quietNode(t, layout, vethWire)

			m := n.monitor(t, MonitorOptions{Rate: 1000})
			if ahead := n.ahead(t, g); ahead != 0 {
				t.Errorf("%d foreign programs ahead while one monitors", ahead)
			}

			sent := mixed(t, n, layout)
			for i, s := range m.next(t, len(sent)) {
				want := sent[i]
				if s.Reason != want.reason || s.Len != len(want.frame) || !bytes.Equal(s.Frame, want.frame[:min(len(want.frame), Snap)]) {
					t.Errorf("sample %d: %s of %d bytes %x, want %s of %d bytes %x", i, s.Reason, s.Len, s.Frame, want.reason, len(want.frame), want.frame)
				}
			}

			want, got := map[string]uint64{}, map[string]uint64{}
			for _, p := range sent {
				want[p.reason] += p.wire.Packets
			}

			for reason, c := range sums(t, n.pinDir) {
				got[reason] = c.Packets
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counted (-sent +counted):\n%s", diff)
			}

			if m.Stale() {
				t.Error("stale, but the programs are those")
			}

			attach(t, n, n.open(t, func(o *Options) { o.Config = g.opts.Config }))

			if !m.Stale() {
				t.Error("not stale after another load was attached")
			}
		})
	}
}

func (n *node) ahead(t *testing.T, g *Gateway) (most int) {
	t.Helper()
	n.must(t, func() (err error) {
		most, err = g.Ahead(n.uplink)
		return err
	})

	return most
}

// A filter selects exactly the matching packets.
func TestMonitor_filter(t *testing.T) {
	needTCX(t)

	reason := func(names ...string) func(Counter) bool {
		return func(c Counter) bool { return slices.Contains(names, c.Reason) }
	}

	n, _ := quietNode(t, verdict.Direct, vethWire)
	for _, tt := range []struct {
		name string
		o    MonitorOptions
		want []string
	}{
		{"reasons", MonitorOptions{Want: reason("svc_leak", "icmp_echo")}, []string{"icmp_echo", "icmp_echo", "svc_leak", "svc_leak"}},
		{"verdict", MonitorOptions{Want: func(c Counter) bool { return c.Verdict == "both" }}, []string{"fragment_early", "arp_reply", "fragment_early", "nd_advert"}},
		{"port", MonitorOptions{Port: 30053}, []string{"service", "service"}},
		{"protocol", MonitorOptions{Proto: protoGRE}, []string{"default", "default"}},
		{"address", MonitorOptions{Addrs: netip.PrefixFrom(v4.vip, 32)}, []string{"service", "hairpin"}},
		{"prefix", MonitorOptions{Addrs: netip.MustParsePrefix("2001:db8:80::/48")}, []string{"service", "hairpin"}},
		{"address, port and protocol", MonitorOptions{Addrs: netip.PrefixFrom(v6.node, 128), Port: 22, Proto: protoTCP}, []string{"default", "default"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Rate = 1000
			m := n.monitor(t, tt.o)
			mixed(t, n, verdict.Direct)

			var got []string
			for _, s := range m.next(t, len(tt.want)) {
				got = append(got, s.Reason)
			}

			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}

			m.SetDeadline(time.Now()) // the mix has all been decided: the last sample came after what is before it

			if s, err := m.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("one more sample: %+v, %v", s, err)
			}

			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Packets beyond the rate are counted as missed and processed normally.
func TestMonitor_rate(t *testing.T) {
	needTCX(t)
	n, _ := quietNode(t, verdict.Direct, vethWire)
	m := n.monitor(t, MonitorOptions{Rate: 1})
	sent := mixed(t, n, verdict.Direct)
	seen := uint64(len(m.next(t, 1)))
	eventually(t, "what was left out", func() bool {
		missed, err := m.Missed()
		if err != nil {
			t.Fatal(err)
		}

		return seen+missed+2 >= uint64(len(sent)) // a second or two may have begun meanwhile
	})

	var counted, want uint64
	for _, c := range sums(t, n.pinDir) {
		counted += c.Packets
	}

	for _, p := range sent {
		want += p.wire.Packets
	}

	if counted != want {
		t.Errorf("%d packets counted, %d sent", counted, want)
	}
}

// After Close, no program remains before or after the gateway's programs.
func TestMonitor_Close(t *testing.T) {
	needTCX(t)
	n, g := quietNode(t, verdict.Bridged, vethWire)
	before := n.running(t, g)

	m := n.monitor(t, MonitorOptions{Rate: 1})
	if during := n.running(t, g); during != before+3 {
		t.Errorf("%d programs on the hooks while one looks, %d before", during, before)
	}

	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	if after := n.running(t, g); after != before {
		t.Errorf("%d programs on the hooks, %d before", after, before)
	}
}

// running returns the number of programs on the gateway's hooks.
func (n *node) running(t *testing.T, g *Gateway) (sum int) {
	t.Helper()

	for _, h := range g.hooks() {
		ifindex := n.uplink
		if h.onBridge {
			ifindex = n.bridge
		}

		n.must(t, func() error {
			all, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: h.attachType()})
			if err == nil {
				sum += len(all.Programs)
			}

			return err
		})
	}

	return sum
}

// On a kernel without tcx, the error says so, although the verifier would fail as well.
func TestOpenMonitor_withoutTCX(t *testing.T) {
	n := newNode(t)
	attach(t, n, n.open(t))

	var m *Monitor

	err := n.do(func() (err error) {
		m, err = OpenMonitor(n.pinDir, MonitorOptions{Rate: 1})
		return err
	})
	if err == nil {
		m.Close()
		t.Skip("kernel has tcx: the monitor was opened")
	}

	if !errors.Is(err, ErrNoTCX) {
		t.Errorf("got %v, want %v", err, ErrNoTCX)
	}
}

func TestOpenMonitor_nothing(t *testing.T) {
	if _, err := OpenMonitor(t.TempDir(), MonitorOptions{}); !errors.Is(err, ErrNotAttached) {
		t.Errorf("got %v, want that nothing is attached", err)
	}
}
