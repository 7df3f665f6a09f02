package ovs

import "encoding/binary"

// ledger computes the sum of each number from existing and deleted flows.
type ledger struct {
	live  [numbers]FlowCount // of the existing flows, at the last round
	gone  [numbers]FlowCount // of deleted flows, from notifications
	total [numbers]FlowCount // of both, at the last round
	begun [numbers]FlowCount // total at the first round, which is subtracted
	known bool               // a first round is complete
	then  [numbers]FlowCount // gone at the start of the connection

	round [numbers]FlowCount // replies of the current round
	went  [numbers]FlowCount // gone at the time of each reply
	left  int                // outstanding replies
}

// connect starts a connection.
func (l *ledger) connect() { l.then, l.left = l.gone, 0 }

// begin starts a round.
func (l *ledger) begin(replies int) {
	l.round, l.went, l.left = [numbers]FlowCount{}, l.gone, replies
}

// take reads one message and reports whether the round is complete.
func (l *ledger) take(p ofPacket) (complete bool) {
	switch {
	case p.kind == ofFlowRemoved && len(p.body) >= 40:
		cookie := binary.BigEndian.Uint64(p.body)
		if cookie&cookieMask == cookieBits {
			n := cookie >> numberAt
			l.gone[n] = l.gone[n].plus(countAt(p.body[24:]))
		}
	case p.kind == ofMultipartReply && len(p.body) >= 32 && p.xid < numbers && l.left > 0:
		l.round[p.xid] = countAt(p.body[8:])
		l.went[p.xid] = l.gone[p.xid]
		l.left--

		return l.left == 0
	}

	return false
}

// settle ends a round. fresh means that it is the connection's first round. If the flows then have
// lower counts than before, they were rewritten, and all earlier flows were deleted without
// notification.
//
// OVS reports the count of a deleted flow with a delay. The total stays constant meanwhile.
func (l *ledger) settle(fresh bool) {
	if !l.known {
		for n := range l.begun {
			l.begun[n] = l.round[n].plus(l.went[n])
		}

		l.total, l.known = l.begun, true
	}

	anew := fresh && packets(&l.round) < packets(&l.live)
	for n := range l.live {
		if anew {
			lost := l.total[n].minus(l.then[n])
			l.gone[n], l.went[n] = l.gone[n].plus(lost), l.went[n].plus(lost)
		}

		now := l.round[n].plus(l.went[n])
		l.total[n] = FlowCount{max(l.total[n].Packets, now.Packets), max(l.total[n].Bytes, now.Bytes)}
	}

	l.live = l.round
}

func packets(of *[numbers]FlowCount) (n uint64) {
	for _, c := range of {
		n += c.Packets
	}

	return n
}

func (l *ledger) answer() answer {
	a := answer{known: l.known}
	for n := range a.sums {
		a.sums[n] = l.total[n].minus(l.begun[n])
	}

	return a
}

func (c FlowCount) plus(d FlowCount) FlowCount {
	return FlowCount{c.Packets + d.Packets, c.Bytes + d.Bytes}
}

// minus may be negative for a while, represented by wrapping.
func (c FlowCount) minus(d FlowCount) FlowCount {
	return FlowCount{c.Packets - d.Packets, c.Bytes - d.Bytes}
}

func countAt(b []byte) FlowCount {
	return FlowCount{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
