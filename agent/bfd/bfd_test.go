package bfd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	f.Add(Packet{State: Up, Mult: 5, Mine: 1, Yours: 2, MinTx: time.Second, MinRx: time.Second}.Marshal())
	f.Add(Packet{State: Down, Mult: 5, Mine: 1, Poll: true}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}

		again, err := Parse(p.Marshal())
		if err != nil || again != p {
			t.Errorf("%x: %+v, then %+v, %v", b, p, again, err)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	good := Packet{State: Down, Mult: 5, Mine: 1}.Marshal()
	for name, change := range map[string]func(b []byte) []byte{
		"short":                  func(b []byte) []byte { return b[:23] },
		"length beyond":          func(b []byte) []byte { b[3] = 25; return b },
		"version":                func(b []byte) []byte { b[0] = 0; return b },
		"authentication":         func(b []byte) []byte { b[1] |= flagAuth; return b },
		"multipoint":             func(b []byte) []byte { b[1] |= flagMulti; return b },
		"no multiplier":          func(b []byte) []byte { b[2] = 0; return b },
		"no discriminator":       func(b []byte) []byte { b[7] = 0; return b },
		"up without a peer":      func(b []byte) []byte { b[1] = byte(Up) << 6; return b },
		"poll and final at once": func(b []byte) []byte { b[1] |= flagPoll | flagFinal; return b },
	} {
		if p, err := Parse(change(bytes.Clone(good))); err == nil {
			t.Errorf("%s: parsed as %+v", name, p)
		}
	}

	if _, err := Parse(good); err != nil {
		t.Error(err)
	}
}

// TestSessionStates walks through the packets that a peer may send.
func TestSessionStates(t *testing.T) {
	own, peer := netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("100.64.0.3")
	now := time.Unix(1e9, 0)
	said := func(s State, yours uint32) Packet {
		return Packet{State: s, Mult: 5, Mine: 7, Yours: yours, MinTx: time.Second, MinRx: time.Second}
	}
	s := newSession(own, peer)
	local := s.local

	for i, step := range []struct {
		what  string
		do    func()
		state State
	}{
		{"the peer starts", func() { s.receive(said(Down, 0), now, true) }, Init},
		{"the peer is up", func() { s.receive(said(Up, local), now, true) }, Up},
		{"packet of another session", func() { s.receive(said(Up, local+1), now, true) }, Up},
		{"silent for almost the detection time", func() { s.tick(now.Add(5*time.Second), true) }, Up},
		{"silent", func() { s.tick(now.Add(5001*time.Millisecond), true) }, Down},
		{"the peer returns in its old state", func() { s.receive(said(Up, local), now, true) }, Down},
		{"the peer restarts", func() { s.receive(said(Down, local), now, true) }, Init},
		{"handshake completes", func() { s.receive(said(Init, local), now, true) }, Up},
		{"the gateway fails", func() { s.tick(now, false) }, AdminDown},
		{"a packet while the gateway is down", func() { s.receive(said(Down, local), now, false) }, AdminDown},
		{"the gateway works again", func() { s.tick(now, true) }, Down},
		{"the peer answers", func() { s.receive(said(Down, local), now, true) }, Init},
		{"the peer is disabled", func() { s.receive(said(AdminDown, local), now, true) }, Down},
	} {
		step.do()

		if s.state != step.state {
			t.Fatalf("step %d, %s: %s, want %s", i, step.what, s.state, step.state)
		}
	}

	if _, gone := s.tick(now.Add(forget+1), true); !gone {
		t.Error("a silent peer is not forgotten")
	}

	after := newSession(own, peer) // // of another agent
	if after.receive(said(Up, local), now, true); after.state != Up || after.local != local {
		t.Errorf("after a restart: %s with discriminator %d, want up with %d", after.state, after.local, local)
	}

	if p := after.packet(now, 1); p.State != Up || p.Yours != 7 || p.Mine != local || after.next.Sub(now) != 750*time.Millisecond {
		t.Errorf("packet %+v, next in %s", p, after.next.Sub(now))
	}
}

// TestResponder talks to a responder over the loopback device as OVN does: from a port of its own,
// with replies to the well-known port.
func TestResponder(t *testing.T) {
	own, peer := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")

	in, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()

	out, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()

	var works atomic.Bool
	works.Store(true)
	r := New(works.Load, slog.New(slog.DiscardHandler))
	r.port = in.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	r.Set([]netip.Addr{own}, []netip.Prefix{netip.PrefixFrom(peer, 32)})

	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	mine := Packet{State: Down, Mult: 5, Mine: 7, MinTx: time.Second, MinRx: time.Second}
	until := func(state State) {
		t.Helper()

		buffer := make([]byte, 128)

		for range 100 {
			if _, err := out.WriteToUDPAddrPort(mine.Marshal(), netip.AddrPortFrom(own, r.port)); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Log(err) // not listening yet
			}

			if err := in.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}

			n, err := in.Read(buffer)
			if err != nil {
				continue
			}

			p, err := Parse(buffer[:n])
			if err != nil {
				t.Fatal(err)
			}

			mine.Yours = p.Mine
			if p.State == state {
				return
			}
		}

		t.Fatalf("did not reach state %s", state)
	}
	until(Init)

	mine.State = Up
	until(Up)
	works.Store(false)
	until(AdminDown)
	works.Store(true)

	mine.State = Down

	until(Init)
	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}
