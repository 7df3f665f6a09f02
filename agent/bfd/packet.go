package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// State is the state of a session, as numbered in RFC 5880, 4.1.
type State uint8

// States of a session.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}

	return fmt.Sprintf("State(%d)", uint8(s))
}

var stateNames = [...]string{"admin_down", "down", "init", "up"}

// Packet is a BFD Control packet without authentication (RFC 5880, 4.1). Its fields on the wire, in
// network byte order:
//
//	byte 0      Version (3 bits), Diagnostic (5 bits, 0 here)
//	byte 1      State (2 bits), flags P, F, C, A, D and M (from 0x20 to 0x01)
//	byte 2      Detect Mult
//	byte 3      Length
//	bytes 4-7   My Discriminator
//	bytes 8-11  Your Discriminator
//	bytes 12-15 Desired Min TX Interval, in microseconds like the following ones
//	bytes 16-19 Required Min RX Interval
//	bytes 20-23 Required Min Echo RX Interval (0 here: no echo packets)
type Packet struct {
	State        State
	Poll, Final  bool
	Mult         uint8  // number of intervals without a packet after which the session is down
	Mine, Yours  uint32 // discriminators of the sender and of the receiver; Yours is 0 while unknown
	MinTx, MinRx time.Duration
}

// Values of the header.
const (
	version   = 1
	packetLen = 24
	flagPoll  = 0x20
	flagFinal = 0x10
	flagAuth  = 0x04
	flagMulti = 0x01
)

// Parse decodes a packet. It rejects packets that a receiver must discard whatever the state of the
// session (RFC 5880, 6.8.6).
func Parse(b []byte) (Packet, error) {
	if len(b) < packetLen || int(b[3]) < packetLen || int(b[3]) > len(b) {
		return Packet{}, errors.New("parse BFD packet: wrong length")
	}

	if b[0]>>5 != version {
		return Packet{}, fmt.Errorf("parse BFD packet: version %d", b[0]>>5)
	}

	if b[1]&(flagAuth|flagMulti) != 0 {
		return Packet{}, fmt.Errorf("parse BFD packet: flags %#x", b[1]&0x3f)
	}

	p := Packet{
		State: State(b[1] >> 6), Poll: b[1]&flagPoll != 0, Final: b[1]&flagFinal != 0, Mult: b[2],
		Mine: binary.BigEndian.Uint32(b[4:]), Yours: binary.BigEndian.Uint32(b[8:]),
		MinTx: micro(b[12:]), MinRx: micro(b[16:]),
	}
	if p.Mult == 0 || p.Mine == 0 || p.Yours == 0 && p.State >= Init || p.Poll && p.Final {
		return Packet{}, fmt.Errorf("parse BFD packet: inconsistent fields in %+v", p)
	}

	return p, nil
}

// micro reads a time in microseconds.
func micro(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}

// Marshal encodes the packet; Parse decodes it.
func (p Packet) Marshal() []byte {
	b := make([]byte, packetLen)
	b[0], b[1], b[2], b[3] = version<<5, byte(p.State)<<6, p.Mult, packetLen

	if p.Poll {
		b[1] |= flagPoll
	}

	if p.Final {
		b[1] |= flagFinal
	}

	binary.BigEndian.PutUint32(b[4:], p.Mine)
	binary.BigEndian.PutUint32(b[8:], p.Yours)
	binary.BigEndian.PutUint32(b[12:], uint32(p.MinTx.Microseconds()))
	binary.BigEndian.PutUint32(b[16:], uint32(p.MinRx.Microseconds()))

	return b
}
