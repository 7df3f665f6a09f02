package live

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

// serve serves the peer and returns the address.
func serve(t *testing.T, peer string) netip.AddrPort {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())

	at, done := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, ServeOptions{
			Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: netip.MustParseAddr(peer), For: time.Minute,
			Ready: func(a netip.AddrPort) { at <- a },
		})
	}()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	select {
	case a := <-at:
		return a
	case err := <-done:
		done <- nil

		t.Fatalf("serve: %v", err)
	}

	panic("unreachable")
}

func TestMeasure(t *testing.T) {
	rows, err := Measure(t.Context(), Options{Peer: serve(t, "127.0.0.1"), Seconds: 1, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}

	var tests []string
	for _, r := range rows {
		tests = append(tests, r.Test)
		if r.Here.Packets == 0 || r.There.Packets == 0 || r.Seconds < 1 {
			t.Errorf("%s: no packets, or no time: %+v", r.Test, r)
		}

		if stream := strings.HasPrefix(r.Test, "stream"); stream == (r.Bytes == 0) || stream == (r.Operations > 0) {
			t.Errorf("%s: %+v", r.Test, r)
		}
		// 100 Mbit/s for a second, plus the excess of the last write.
		if r.Bytes > 12_500_000+60_000 {
			t.Errorf("%s: %d bytes are over the limit", r.Test, r.Bytes)
		}
	}

	if diff := cmp.Diff(Tests(), tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}

// Only the peer gets replies, by TCP or UDP.
func TestOnlyPeerIsServed(t *testing.T) {
	at := serve(t, "127.0.0.2")
	if rows, err := Measure(t.Context(), Options{Peer: at, Seconds: 1}); err == nil {
		t.Errorf("measured %+v", rows)
	}

	ask := func(from string) error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from+":0")), net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()

		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}

		return exchange(c, 7)
	}
	if err := ask("127.0.0.2"); err != nil {
		t.Errorf("the peer gets no reply: %v", err)
	}

	if err := ask("127.0.0.1"); err == nil {
		t.Error("another client gets a reply")
	}
}

func TestBounds(t *testing.T) {
	peer := netip.MustParseAddr("127.0.0.1")
	for _, o := range []ServeOptions{{For: time.Minute}, {Peer: peer}, {Peer: peer, For: 2 * MaxServe}} {
		if err := Serve(t.Context(), o); err == nil {
			t.Errorf("served %+v", o)
		}
	}

	for _, o := range []Options{{}, {Seconds: MaxSeconds + 1}, {Seconds: 1, Limit: -1}} {
		if _, err := Measure(t.Context(), o); err == nil {
			t.Errorf("measured %+v", o)
		}
	}

	if got := due(1_250_000, 10); got != time.Second {
		t.Errorf("10 Mbit are due after %s at 10 Mbit/s", got)
	}

	if got := due(1<<40, 0); got != 0 {
		t.Errorf("without a limit bytes are due after %s", got)
	}
}

// TestRounds checks the order of backends, and the return to the first one.
func TestRounds(t *testing.T) {
	no := errors.New("no")
	for _, tt := range []struct {
		name     string
		measure  error
		fails    string // backend that cannot be activated
		measured []string
		switched []string
		ok       bool
	}{
		{"back and forth", nil, "", []string{"a", "b", "b", "a"}, []string{"b", "a"}, true},
		{"a switch fails", nil, "b", []string{"a"}, []string{"b", "a"}, false},
		{"measuring fails", no, "", nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var switched, measured []string

			rows, err := inRounds(t.Context(), func(context.Context) ([]Row, error) { return []Row{{Test: UDPRR}}, tt.measure }, []string{"a", "b"}, 2,
				func(ctx context.Context, backend string) error {
					switched = append(switched, backend)
					if backend == tt.fails {
						return no
					}

					return ctx.Err()
				})
			if (err == nil) != tt.ok {
				t.Fatal(err)
			}

			for _, r := range rows {
				measured = append(measured, r.Backend)
			}

			if diff := cmp.Diff([][]string{tt.switched, tt.measured}, [][]string{switched, measured}); diff != "" {
				t.Errorf("switched to, measured (-want +got):\n%s", diff)
			}
		})
	}
	// An interruption during the second backend restores the first one.
	ctx, cancel := context.WithCancel(t.Context())

	current := "a"
	if _, err := inRounds(ctx, func(ctx context.Context) ([]Row, error) { return nil, ctx.Err() }, []string{"a", "b"}, 1, func(ctx context.Context, backend string) error {
		current = backend

		cancel()

		return context.Cause(ctx)
	}); err == nil || current != "a" {
		t.Errorf("interrupted: %v, and %q is left", err, current)
	}
}

func TestRead(t *testing.T) {
	cpu := procfs.CPUStat{User: 1, Nice: 0.2, System: 0.3, Idle: 10, Iowait: 5, IRQ: 0.04, SoftIRQ: 0.05, Steal: 0.06, Guest: 0.5}
	if busy := busyTime(cpu); busy.Round(time.Millisecond) != 1650*time.Millisecond {
		t.Errorf("busy %s: want user, nice, system, irq, softirq and steal", busy)
	}

	first, err := readUsage(netip.MustParseAddr("127.0.0.1"))
	if err != nil || first.Busy <= 0 {
		t.Fatalf("used %+v, %v: want CPU time", first, err)
	}

	// A datagram to itself is sent and received.
	c, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}

	second, err := readUsage(netip.MustParseAddr("127.0.0.1"))
	if used := second.since(first); err != nil || used.Packets < 2 || used.Busy < 0 {
		t.Errorf("used %+v, %v: want the datagram, sent and received", used, err)
	}

	if u, err := readUsage(netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Errorf("used %+v by an interface that does not exist", u)
	}
}

func TestReport(t *testing.T) {
	rows := []Row{
		{Backend: "ebpf", Test: UDPRR, Seconds: 2, Operations: 20000, P50: 80, P99: 120, Lost: 1, Here: Cost{40000, 0.2}, There: Cost{40000, 0.24}},
		{Backend: "ebpf", Test: StreamOut, Seconds: 2, Bytes: 250e6, Here: Cost{100000, 0.5}},
		{Backend: "openflow", Test: UDPRR, Seconds: 2, Operations: 18000, P50: 90, P99: 150, Here: Cost{36000, 0.27}, There: Cost{36000, 0.18}},
	}

	want := `| test | backend | result | packets/s here | CPU/packet here | CPU/packet there |
|---|---|---:|---:|---:|---:|
| udp_rr | ebpf | 10000/s, p50 80 µs, p99 120 µs, 1 lost | 20000 | 5000 ns | 6000 ns |
| udp_rr | openflow | 9000/s, p50 90 µs, p99 150 µs | 18000 | 7500 ns | 5000 ns |
| stream_out | ebpf | 1000 Mbit/s | 50000 | 5000 ns | 0 ns |

CPU per packet at this end, median of the rounds, in terms of ebpf:

| test | openflow |
|---|---:|
| udp_rr | 1.50 |
| tcp_rr | – |
| stream_out | – |
| stream_in | – |
`
	if diff := cmp.Diff(want, Report(rows)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
