package ovs

import (
	"encoding/binary"
	"testing"
)

// round lets the flows of number 1 have so many packets of ten bytes.
func (l *ledger) testRound(t *testing.T, fresh bool, packets uint64, removed ...uint64) uint64 {
	t.Helper()
	l.begin(1)

	for _, n := range removed {
		body := make([]byte, 40)
		binary.BigEndian.PutUint64(body, numbered(1))
		binary.BigEndian.PutUint64(body[24:], n)
		binary.BigEndian.PutUint64(body[32:], 10*n)

		if l.take(ofPacket{kind: ofFlowRemoved, body: body}) {
			t.Fatal("a removal ends a round")
		}
	}

	body := make([]byte, 32)
	binary.BigEndian.PutUint64(body[8:], packets)
	binary.BigEndian.PutUint64(body[16:], 10*packets)

	if !l.take(ofPacket{kind: ofMultipartReply, xid: 1, body: body}) {
		t.Fatal("the round goes on")
	}

	l.settle(fresh)

	got := l.answer().sums[1]
	if !l.answer().known || got.Bytes != 10*got.Packets {
		t.Fatalf("%+v", got)
	}

	return got.Packets
}

func TestLedger(t *testing.T) {
	l := &ledger{}
	l.connect()

	if l.answer().known {
		t.Error("known before the first round")
	}

	for _, step := range []struct {
		name    string
		connect bool
		packets uint64
		removed []uint64
		want    uint64
	}{
		{"what was before is not counted", true, 100, []uint64{7}, 0},
		{"counts", false, 130, nil, 30},
		{"deleted, and told later", false, 20, nil, 30},
		{"told", false, 21, []uint64{112}, 33},
		{"told before the flows have less", false, 21, []uint64{5}, 38},
		{"a new connection to the same switch", true, 25, nil, 42},
		{"to one with flows written anew", true, 3, nil, 45},
		{"which count on", false, 4, []uint64{2}, 48},
		{"and once more, told of some meanwhile", true, 1, []uint64{1}, 50},
		{"on", false, 3, nil, 52},
	} {
		if step.connect {
			l.connect()
		}

		if got := l.testRound(t, step.connect, step.packets, step.removed...); got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
}
