package bfd

import (
	"hash/fnv"
	"net/netip"
	"time"
)

// What this end proposes. A peer gives up after mult intervals of silence: a
// restart of the agent should be over by then.
const (
	interval = time.Second
	mult     = 5
	forget   = time.Minute // a peer that has gone
)

// session is one with a peer. It decides, and does nothing.
type session struct {
	local, remote uint32
	state         State
	peer          Packet    // the last
	heard         time.Time // when that was
	next          time.Time // when to speak
}

// newSession is with a peer that has just spoken.
func newSession(own, peer netip.Addr) *session {
	h := fnv.New32a()
	_, _ = h.Write([]byte(own.String() + " " + peer.String())) // a hash returns no error
	return &session{local: max(h.Sum32(), 1), state: Down}
}

// receive takes a packet of the peer (RFC 5880, 6.8.6), and says whether to
// answer at once. Without work this end is down on purpose, and says so.
func (s *session) receive(p Packet, now time.Time, works bool) (answer bool) {
	if p.Yours != 0 && p.Yours != s.local && p.State > Down {
		return false // of a session that is not this one
	}
	fresh := s.heard.IsZero()
	s.remote, s.peer, s.heard = p.Mine, p, now
	before := s.state
	switch {
	case !works:
		s.state = AdminDown
	case fresh && p.State == Up:
		s.state = Up // the agent before had it up
	case p.State == AdminDown:
		s.state = Down
	case s.state == AdminDown, s.state == Down:
		s.state = map[State]State{Down: Init, Init: Up, Up: Down}[p.State]
	case s.state == Init && p.State >= Init:
		s.state = Up
	case s.state == Up && p.State == Down:
		s.state = Down
	}
	return p.Poll || s.state != before || fresh
}

// tick is what time does: silence takes the session down, and forgets it in
// the end. It says whether it is time to speak.
func (s *session) tick(now time.Time, works bool) (speak, gone bool) {
	silence := now.Sub(s.heard)
	if silence > forget {
		return false, true
	}
	if silence > time.Duration(s.peer.Mult)*max(s.peer.MinTx, interval) && s.state > Down {
		s.state, s.remote = Down, 0
	}
	if !works {
		s.state = AdminDown
	} else if s.state == AdminDown {
		s.state = Down
	}
	return !now.Before(s.next), false
}

// packet is what to say now; jitter is 0 to 1. It sets the time of the next.
func (s *session) packet(now time.Time, jitter float64) Packet {
	every := max(interval, s.peer.MinRx)
	s.next = now.Add(every - time.Duration(jitter*float64(every)/4)) // RFC 5880, 6.8.7
	final := s.peer.Poll
	s.peer.Poll = false
	return Packet{
		State: s.state, Final: final, Mult: mult, Mine: s.local, Yours: s.remote, MinTx: interval, MinRx: interval,
	}
}
