package bfd

import (
	"hash/fnv"
	"net/netip"
	"time"
)

// Times of a session.
const (
	interval = time.Second // between packets, in both directions: this end's Min TX and Min RX
	mult     = 5           // intervals; a restart of the agent should take less
	forget   = time.Minute // until a silent peer's session is deleted
)

// session is the state machine of a session with one peer (RFC 5880, 6.2 and 6.8). A session comes
// up by a three-way handshake: Down, Init, Up. It is AdminDown while the gateway does not work, so
// the peer does not use the gateway. A session does no I/O. It has one owner.
type session struct {
	local, remote uint32 // discriminators; remote is 0 while unknown
	state         State
	peer          Packet    // the last packet
	heard         time.Time // time of the last packet
	next          time.Time // time of the next packet to send
}

// newSession returns the session for a peer that has just sent a packet.
func newSession(own, peer netip.Addr) *session {
	h := fnv.New32a()
	_, _ = h.Write([]byte(own.String() + " " + peer.String())) // a hash returns no error

	return &session{local: max(h.Sum32(), 1), state: Down} // a discriminator must not be 0
}

// receive handles a packet of the peer (RFC 5880, 6.8.6). It reports whether to answer at once. If
// works is false, the session goes to AdminDown.
func (s *session) receive(p Packet, now time.Time, works bool) (answer bool) {
	if p.Yours != 0 && p.Yours != s.local && p.State > Down {
		return false // a packet of another session
	}

	isFirst := s.heard.IsZero()
	s.remote, s.peer, s.heard = p.Mine, p, now

	before := s.state
	switch {
	case !works:
		s.state = AdminDown
	case isFirst && p.State == Up:
		s.state = Up // the session was up with the previous agent
	case p.State == AdminDown:
		s.state = Down
	case s.state == AdminDown, s.state == Down:
		// Up belongs to a session that this end has lost: the handshake begins again.
		s.state = map[State]State{Down: Init, Init: Up, Up: Down}[p.State]
	case s.state == Init && p.State >= Init:
		s.state = Up
	case s.state == Up && p.State == Down:
		s.state = Down
	}

	return p.Poll || s.state != before || isFirst
}

// tick applies the passing of time, and changes of works: silence takes the session down, and
// finally it expires. tick reports whether a packet is due, and whether the session has expired.
func (s *session) tick(now time.Time, works bool) (due, expired bool) {
	silence := now.Sub(s.heard)
	if silence > forget {
		return false, true
	}

	detectionTime := time.Duration(s.peer.Mult) * max(s.peer.MinTx, interval) // RFC 5880, 6.8.4
	if silence > detectionTime && s.state > Down {
		s.state, s.remote = Down, 0
	}

	if !works {
		s.state = AdminDown
	} else if s.state == AdminDown {
		s.state = Down
	}

	return !now.Before(s.next), false
}

// packet returns the packet to send now, and sets the time of the next one. jitter is a random
// number from 0 to 1, which shortens the interval by up to a quarter (RFC 5880, 6.8.7).
func (s *session) packet(now time.Time, jitter float64) Packet {
	every := max(interval, s.peer.MinRx)
	s.next = now.Add(every - time.Duration(jitter*float64(every)/4))
	final := s.peer.Poll // answers the peer's poll, once
	s.peer.Poll = false

	return Packet{
		State: s.state,
		Final: final,
		Mult:  mult,
		Mine:  s.local,
		Yours: s.remote,
		MinTx: interval,
		MinRx: interval,
	}
}
