package ovs

import "encoding/binary"

// ledger computes the sums of FlowCounts. The switch reports the counts of existing flows on
// request, and the final count of a deleted flow in a notification, OFPT_FLOW_REMOVED. A sum is the
// counts of the existing flows plus those of the deleted ones, minus their value at the first round
// (origin).
//
// A round requests the counts of all numbers: begin starts it, take reads the messages, which are
// one reply for each number and notifications, and settle ends it. connect precedes the first round
// of each connection. All arrays are indexed by number. A ledger is not safe for concurrent use.
type ledger struct {
	existing [numberCount]FlowCount // of the existing flows, at the last round
	deleted  [numberCount]FlowCount // of deleted flows, from notifications
	total    [numberCount]FlowCount // of both, at the last round
	origin   [numberCount]FlowCount // total at the first round
	known    bool                   // a first round is complete

	deletedAtConnect [numberCount]FlowCount // deleted at the start of the connection

	replies        [numberCount]FlowCount // of the current round
	deletedAtReply [numberCount]FlowCount // deleted at the time of each reply
	outstanding    int                    // replies that the round lacks
}

// connect starts a connection.
func (l *ledger) connect() {
	l.deletedAtConnect = l.deleted
	l.outstanding = 0
}

// begin starts a round with this number of replies.
func (l *ledger) begin(replies int) {
	l.replies = [numberCount]FlowCount{}
	l.deletedAtReply = l.deleted
	l.outstanding = replies
}

// take reads one message and reports whether the round is complete. It ignores other messages than
// these, at offsets after ofp_header:
//
//   - ofp_flow_removed of OpenFlow 1.4, 7.4.2: the cookie at 0, packets at 24, bytes at 32
//   - ofp_aggregate_stats_reply, 7.3.5.3, after the fixed part of a multipart message: packets at
//     0, bytes at 8, and 8 more bytes. Its xid is the number (sumRequest).
func (l *ledger) take(p ofPacket) (complete bool) {
	const (
		removedCountsAt = 24
		removedLen      = 40
		replyLen        = multipartLen + 24
	)

	switch {
	case p.kind == ofFlowRemoved && len(p.body) >= removedLen:
		cookie := binary.BigEndian.Uint64(p.body)
		if cookie&cookieMask == cookieBits {
			n := cookie >> numberAt
			l.deleted[n] = l.deleted[n].plus(countAt(p.body[removedCountsAt:]))
		}
	case p.kind == ofMultipartReply && len(p.body) >= replyLen && p.xid < numberCount && l.outstanding > 0:
		l.replies[p.xid] = countAt(p.body[multipartLen:])
		l.deletedAtReply[p.xid] = l.deleted[p.xid]
		l.outstanding--

		return l.outstanding == 0
	}

	return false
}

// settle ends a round. isFirst means that it is the connection's first round. If the existing flows
// then have fewer packets than before, they were written anew while the ledger was not connected,
// and the earlier flows were deleted without a notification. So settle adds the last known counts
// of the earlier flows to the deleted ones.
//
// OVS reports the count of a deleted flow with a delay. Meanwhile the sum would be too low, so the
// total keeps its last value.
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

// answer returns the sums since the first round.
func (l *ledger) answer() answer {
	a := answer{known: l.known}
	for n := range a.sums {
		a.sums[n] = l.total[n].minus(l.origin[n])
	}

	return a
}

// packets sums the packets of all numbers.
func packets(counts *[numberCount]FlowCount) (n uint64) {
	for _, c := range counts {
		n += c.Packets
	}

	return n
}

func (c FlowCount) plus(d FlowCount) FlowCount {
	return FlowCount{c.Packets + d.Packets, c.Bytes + d.Bytes}
}

// minus wraps below 0. A later plus makes up for that.
func (c FlowCount) minus(d FlowCount) FlowCount {
	return FlowCount{c.Packets - d.Packets, c.Bytes - d.Bytes}
}

// countAt reads the packets and bytes, two uint64, at the start of b.
func countAt(b []byte) FlowCount {
	return FlowCount{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
