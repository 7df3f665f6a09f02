package ovs

import "encoding/binary"

// ledger is what is known of each number's sum: what the flows that are there have
// counted, and those that have gone.
type ledger struct {
	live  [numbers]FlowCount // of the flows that are there, at the last round
	gone  [numbers]FlowCount // of those that have gone, and we were told
	total [numbers]FlowCount // of both, at the last round
	begun [numbers]FlowCount // total at the first round: what was before is not ours to tell
	known bool               // there was a first round
	then  [numbers]FlowCount // gone, when the connection began

	round [numbers]FlowCount // the replies so far
	went  [numbers]FlowCount // gone, when each came
	left  int                // how many are to come
}

// connect begins a connection.
func (l *ledger) connect() { l.then, l.left = l.gone, 0 }

// begin begins a round.
func (l *ledger) begin(replies int) {
	l.round, l.went, l.left = [numbers]FlowCount{}, l.gone, replies
}

// take reads one message. It tells whether a round is complete now.
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

// settle ends a round. fresh: it is the connection's first. If flows have less than
// they had by then, they were written anew, and all of before have gone untold.
//
// OVS tells a little later than it deletes what a flow had: meanwhile the total
// stands still.
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

// minus may be less than nothing for a while: it wraps.
func (c FlowCount) minus(d FlowCount) FlowCount {
	return FlowCount{c.Packets - d.Packets, c.Bytes - d.Bytes}
}

func countAt(b []byte) FlowCount {
	return FlowCount{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
