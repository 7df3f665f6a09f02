package ovs

import "encoding/binary"

// ledger computes the sums of FlowCounts, from counts of the existing flows and notifications about
// deleted flows. A round asks for the counts of all numbers, and has a reply for each number. All
// arrays are indexed by number.
type ledger struct {
	existing [numbers]FlowCount // of the existing flows, at the last round
	deleted  [numbers]FlowCount // of deleted flows, from notifications
	total    [numbers]FlowCount // of both, at the last round
	origin   [numbers]FlowCount // total at the first round, which the sums leave out
	known    bool               // a first round is complete

	deletedAtConnect [numbers]FlowCount // deleted at the start of the connection

	replies        [numbers]FlowCount // of the current round
	deletedAtReply [numbers]FlowCount // deleted at the time of each reply
	outstanding    int                // replies that the round lacks
}

// connect starts a connection.
func (l *ledger) connect() {
	l.deletedAtConnect = l.deleted
	l.outstanding = 0
}

// begin starts a round with this number of replies.
func (l *ledger) begin(replies int) {
	l.replies = [numbers]FlowCount{}
	l.deletedAtReply = l.deleted
	l.outstanding = replies
}

// take reads one message and reports whether the round is complete.
func (l *ledger) take(p ofPacket) (complete bool) {
	switch {
	case p.kind == ofFlowRemoved && len(p.body) >= 40:
		cookie := binary.BigEndian.Uint64(p.body)
		if cookie&cookieMask == cookieBits {
			n := cookie >> numberAt
			l.deleted[n] = l.deleted[n].plus(countAt(p.body[24:]))
		}
	case p.kind == ofMultipartReply && len(p.body) >= 32 && p.xid < numbers && l.outstanding > 0:
		l.replies[p.xid] = countAt(p.body[8:])
		l.deletedAtReply[p.xid] = l.deleted[p.xid]
		l.outstanding--

		return l.outstanding == 0
	}

	return false
}

// settle ends a round. isFirst means that it is the connection's first round. If the existing flows
// then have lower counts than before, they were rewritten, and all earlier flows were deleted
// without notification. So what they had counted is added to the deleted ones.
//
// OVS reports the count of a deleted flow with a delay. The total stays constant meanwhile.
func (l *ledger) settle(isFirst bool) {
	if !l.known {
		for n := range l.origin {
			l.origin[n] = l.replies[n].plus(l.deletedAtReply[n])
		}

		l.total, l.known = l.origin, true
	}

	rewritten := isFirst && packets(&l.replies) < packets(&l.existing)
	for n := range l.existing {
		if rewritten {
			lost := l.total[n].minus(l.deletedAtConnect[n])
			l.deleted[n] = l.deleted[n].plus(lost)
			l.deletedAtReply[n] = l.deletedAtReply[n].plus(lost)
		}

		now := l.replies[n].plus(l.deletedAtReply[n])
		l.total[n] = FlowCount{max(l.total[n].Packets, now.Packets), max(l.total[n].Bytes, now.Bytes)}
	}

	l.existing = l.replies
}

// packets sums the packets of all numbers.
func packets(counts *[numbers]FlowCount) (n uint64) {
	for _, c := range counts {
		n += c.Packets
	}

	return n
}

// answer returns the sums since the first round.
func (l *ledger) answer() answer {
	a := answer{known: l.known}
	for n := range a.sums {
		a.sums[n] = l.total[n].minus(l.origin[n])
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

// countAt reads the packets and bytes at the start of b.
func countAt(b []byte) FlowCount {
	return FlowCount{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
