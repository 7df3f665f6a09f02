package ovs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// FlowCount is the number of packets and bytes that flows have counted.
type FlowCount struct{ Packets, Bytes uint64 }

// FlowCounts sums the counts of flows by number (FlowSync) since Run began. A sum never decreases:
// OVS reports the final count of a deleted flow, and the last values stay when ovs-vswitchd ends.
//
// OVS itself reads counts from the datapath with a delay of about half a second. The last part of
// that is lost when a flow is deleted or the switch ends.
type FlowCounts struct {
	RunDir, Bridge string

	requests chan chan<- answer // from Read to Run: where to send the answer
	numbers  []uint8            // numbers that flows may have
}

// numbers is one more than the largest number of a flow.
const numbers = 256

// answer is the result of a Read.
type answer struct {
	sums  [numbers]FlowCount
	known bool
}

// NewFlowCounts returns a FlowCounts for flows of these numbers.
func NewFlowCounts(rundir, bridge string, numbers []uint8) *FlowCounts {
	return &FlowCounts{RunDir: rundir, Bridge: bridge, numbers: numbers, requests: make(chan chan<- answer)}
}

// Read returns the current sums by number, or the last ones without a switch. Run must be running.
// Before the first reply of the bridge, Read returns an error.
func (c *FlowCounts) Read(ctx context.Context) ([numbers]FlowCount, error) {
	got := make(chan answer, 1)
	select {
	case c.requests <- got:
	case <-ctx.Done():
		return [numbers]FlowCount{}, fmt.Errorf("read counts of flows of %s: %w", c.Bridge, ctx.Err())
	}

	select {
	case a := <-got:
		if !a.known {
			return a.sums, fmt.Errorf("read counts of flows of %s: no connection yet", c.Bridge)
		}

		return a.sums, nil
	case <-ctx.Done():
		return [numbers]FlowCount{}, fmt.Errorf("read counts of flows of %s: %w", c.Bridge, ctx.Err())
	}
}

// Run holds a connection to the bridge until ctx ends.
func (c *FlowCounts) Run(ctx context.Context) error {
	l := &ledger{}

	const firstWait, maxWait = 50 * time.Millisecond, time.Second

	wait := firstWait

	for ctx.Err() == nil {
		if err := c.serveConnection(ctx, l); err == nil {
			wait = firstWait // the connection was up
		}

		c.answerDisconnected(ctx, l, wait)
		wait = min(2*wait, maxWait)
	}

	return nil
}

// answerDisconnected answers calls of Read with the last sums for a while, or until ctx ends.
func (c *FlowCounts) answerDisconnected(ctx context.Context, l *ledger, wait time.Duration) {
	retry := time.After(wait)

	for {
		select {
		case <-ctx.Done():
			return
		case reader := <-c.requests:
			reader <- l.answer()
		case <-retry:
			return
		}
	}
}

// serveConnection keeps the ledger over one connection. It returns nil if the connection was up.
func (c *FlowCounts) serveConnection(ctx context.Context, l *ledger) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	packets := make(chan ofPacket)

	done := make(chan struct{})

	defer close(done)
	go func() {
		defer close(packets)

		for {
			p, err := readOpenFlow(conn)
			if err != nil {
				return
			}

			select {
			case packets <- p:
			case <-done:
				return
			}
		}
	}()

	return c.serve(conn, packets, l)
}

// dial connects to the bridge, and asks for notifications about deleted flows.
func (c *FlowCounts) dial(ctx context.Context) (net.Conn, error) {
	return dialOpenFlow(ctx, bridgeSocket(c.RunDir, c.Bridge), removalsRequest())
}

var errNeverUp = errors.New("connection ended before a first reply")

// serve answers calls of Read. At most one round of requests is pending. The first round starts
// without a call and sets the origin of the sums.
func (c *FlowCounts) serve(conn net.Conn, packets <-chan ofPacket, l *ledger) error {
	isUp := false // the first round is complete

	l.connect()

	var reader chan<- answer // the call that waits for the pending round, or nil

	if err := c.begin(conn, l); err != nil {
		return err
	}

	for {
		requests := c.requests
		if reader != nil || !isUp {
			requests = nil // blocks: a round is pending
		}

		select {
		case reader = <-requests:
			if err := c.begin(conn, l); err != nil {
				reader <- l.answer()
				return nil
			}
		case p, ok := <-packets:
			if !ok { // the connection has ended
				if reader != nil {
					reader <- l.answer()
				}

				if !isUp {
					return errNeverUp
				}

				return nil
			}

			if p.kind == ofEchoRequest {
				_, _ = conn.Write(ofMessage(ofEchoReply, p.xid, p.body)) // a lost connection is detected above
			}

			if complete := l.take(p); !complete {
				continue
			}

			l.settle(!isUp)

			if reader != nil {
				reader <- l.answer()
			}

			isUp, reader = true, nil
		}
	}
}

// begin starts a round: it asks for the counts of all numbers.
func (c *FlowCounts) begin(conn net.Conn, l *ledger) error {
	l.begin(len(c.numbers))
	_, err := conn.Write(c.sumRequests())

	return err
}

// sumRequests returns a sumRequest for each number.
func (c *FlowCounts) sumRequests() []byte {
	var b []byte
	for _, n := range c.numbers {
		b = append(b, sumRequest(n)...)
	}

	return b
}

// The messages of OpenFlow 1.4 for counts.
const (
	ofFlowRemoved      = 11
	ofMultipartRequest = 18
	ofMultipartReply   = 19
	ofSetAsync         = 28
	ofAggregate        = 2
)

// removalsRequest returns the request for notifications about deleted flows.
func removalsRequest() []byte {
	const master, idle, hard, deleted = 5, 1 << 0, 1 << 1, 1 << 2

	body := binary.BigEndian.AppendUint16(nil, master)
	body = binary.BigEndian.AppendUint16(body, 8)

	return ofMessage(ofSetAsync, 2, binary.BigEndian.AppendUint32(body, idle|hard|deleted))
}

// sumRequest returns the request for the sum over all flows of a number. The xid of the reply is
// the number.
func sumRequest(number uint8) []byte {
	body := make([]byte, 48)
	binary.BigEndian.PutUint16(body, ofAggregate)
	body[8] = 0xff                                     // all tables
	binary.BigEndian.PutUint32(body[12:], 0xffff_ffff) // any port
	binary.BigEndian.PutUint32(body[16:], 0xffff_ffff) // any group
	binary.BigEndian.PutUint64(body[24:], numbered(number))
	binary.BigEndian.PutUint64(body[32:], ^uint64(0))
	binary.BigEndian.PutUint16(body[40:], 1) // OXM
	binary.BigEndian.PutUint16(body[42:], 4) // matches everything

	return ofMessage(ofMultipartRequest, uint32(number), body)
}

// ReadFlowSums sums, by number (FlowSync), the counts of the flows on the bridge, each since it was
// written. It needs only ovs-vswitchd. Counts of deleted flows are not included.
func ReadFlowSums(
	ctx context.Context,
	rundir, bridge string,
	flowNumbers []uint8,
) ([numbers]FlowCount, error) {
	c := NewFlowCounts(rundir, bridge, flowNumbers)

	var l ledger
	l.begin(len(flowNumbers))
	err := c.exchange(ctx, "counts of flows", c.sumRequests(), l.take)

	return l.replies, err
}

// exchange sends requests over a connection of their own, and calls take for each message until
// take returns true. what names the result in errors.
func (c *FlowCounts) exchange(
	ctx context.Context,
	what string,
	requests []byte,
	take func(ofPacket) (complete bool),
) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	if _, err := conn.Write(requests); err != nil {
		return fmt.Errorf("ask %s for %s: %w", c.Bridge, what, err)
	}

	for {
		p, err := readOpenFlow(conn)
		if ctx.Err() != nil {
			err = ctx.Err()
		}

		if err != nil {
			return fmt.Errorf("read %s of %s: %w", what, c.Bridge, err)
		}

		if take(p) {
			return nil
		}
	}
}
