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
		"up with nobody":         func(b []byte) []byte { b[1] = byte(Up) << 6; return b },
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

// TestSession walks through what a peer may say.
func TestSession(t *testing.T) {
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
		{"the peer begins", func() { s.receive(said(Down, 0), now, true) }, Init},
		{"it has heard", func() { s.receive(said(Up, local), now, true) }, Up},
		{"somebody else's session", func() { s.receive(said(Up, local+1), now, true) }, Up},
		{"nearly too long silent", func() { s.tick(now.Add(5*time.Second), true) }, Up},
		{"silent", func() { s.tick(now.Add(5001*time.Millisecond), true) }, Down},
		{"back, as if nothing had been", func() { s.receive(said(Up, local), now, true) }, Down},
		{"begins again", func() { s.receive(said(Down, local), now, true) }, Init},
		{"and again", func() { s.receive(said(Init, local), now, true) }, Up},
		{"the gateway does not work", func() { s.tick(now, false) }, AdminDown},
		{"nor now", func() { s.receive(said(Down, local), now, false) }, AdminDown},
		{"it works", func() { s.tick(now, true) }, Down},
		{"and the peer hears", func() { s.receive(said(Down, local), now, true) }, Init},
		{"the peer is told to stop", func() { s.receive(said(AdminDown, local), now, true) }, Down},
	} {
		step.do()
		if s.state != step.state {
			t.Fatalf("step %d, %s: %s, want %s", i, step.what, s.state, step.state)
		}
	}
	if _, gone := s.tick(now.Add(forget+1), true); !gone {
		t.Error("a peer that has gone is not forgotten")
	}
	after := newSession(own, peer) // another agent's
	if after.receive(said(Up, local), now, true); after.state != Up || after.local != local {
		t.Errorf("after a restart: %s with discriminator %d, want up with %d", after.state, after.local, local)
	}
	if p := after.packet(now, 1); p.State != Up || p.Yours != 7 || p.Mine != local || after.next.Sub(now) != 750*time.Millisecond {
		t.Errorf("packet %+v, next in %s", p, after.next.Sub(now))
	}
}

// TestResponder speaks with a responder over the loopback device as OVN does:
// from a port of its own, answered at the well-known one.
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
				t.Log(err) // it does not listen yet
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
		t.Fatalf("never %s", state)
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
