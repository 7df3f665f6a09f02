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
//
// Run holds the connection to the bridge and owns the ledger, which does the arithmetic. Read sends
// Run a request, may be called concurrently, and waits until a round of requests to the switch has
// ended.
type FlowCounts struct {
	RunDir, Bridge string

	requests chan chan<- answer // from Read to Run: where to send the answer
	numbers  []uint8            // numbers that flows may have
}

// numberCount is one more than the largest number of a flow.
const numberCount = 256

// answer is the result of a Read.
type answer struct {
	sums  [numberCount]FlowCount // by number
	known bool                   // a first round is complete
}

// NewFlowCounts returns a FlowCounts for flows of these numbers. It counts once Run runs.
func NewFlowCounts(rundir, bridge string, numbers []uint8) *FlowCounts {
	return &FlowCounts{RunDir: rundir, Bridge: bridge, numbers: numbers, requests: make(chan chan<- answer)}
}

// Read returns the current sums by number, or the last ones without a switch. Run must be running.
// Before the first reply of the bridge, Read returns an error.
func (c *FlowCounts) Read(ctx context.Context) ([numberCount]FlowCount, error) {
	got := make(chan answer, 1)
	select {
	case c.requests <- got:
	case <-ctx.Done():
		return [numberCount]FlowCount{}, fmt.Errorf("read counts of flows of %s: %w", c.Bridge, ctx.Err())
	}

	select {
	case a := <-got:
		if !a.known {
			return a.sums, fmt.Errorf("read counts of flows of %s: no connection yet", c.Bridge)
		}

		return a.sums, nil
	case <-ctx.Done():
		return [numberCount]FlowCount{}, fmt.Errorf("read counts of flows of %s: %w", c.Bridge, ctx.Err())
	}
}

// Run holds a connection to the bridge until ctx ends, and answers calls of Read. It returns nil.
func (c *FlowCounts) Run(ctx context.Context) error {
	const firstWait, maxWait = 50 * time.Millisecond, time.Second

	l := &ledger{}
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

	packets := make(chan ofPacket) // closed at the end of the connection
	done := make(chan struct{})    // ends the goroutine below

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

// serve answers calls of Read until the connection ends. At most one round of requests is pending.
// The first round of a connection starts without a call; the first of all sets the origin of the
// sums. serve returns errNeverUp if the connection ended before its first round was complete.
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

// Types of the messages of OpenFlow 1.4 for counts.
const (
	ofFlowRemoved      = 11 // OFPT_FLOW_REMOVED
	ofMultipartRequest = 18 // OFPT_MULTIPART_REQUEST
	ofMultipartReply   = 19 // OFPT_MULTIPART_REPLY
	ofSetAsync         = 28 // OFPT_SET_ASYNC
	ofAggregate        = 2  // OFPMP_AGGREGATE, a type of multipart messages
)

// multipartLen is the length of the fixed part of a multipart message's body (OpenFlow 1.4, 7.3.5):
//
//	type uint16, flags uint16, 4 bytes of padding
const multipartLen = 8

// removalsRequest returns the request for notifications about deleted flows: OFPT_SET_ASYNC of
// OpenFlow 1.4 with one property, ofp_async_config_prop_reasons. OVS sends them for flows that have
// the flag send_flow_rem.
func removalsRequest() []byte {
	const (
		forMaster = 5 // OFPACPT_FLOW_REMOVED_MASTER, also for connections without a role
		length    = 8 // of the property

		idle, hard, deleted = 1 << 0, 1 << 1, 1 << 2 // bits of OFPRR_IDLE_TIMEOUT, _HARD_TIMEOUT and _DELETE
	)

	property := binary.BigEndian.AppendUint16(nil, forMaster)
	property = binary.BigEndian.AppendUint16(property, length)
	property = binary.BigEndian.AppendUint32(property, idle|hard|deleted)

	return ofMessage(ofSetAsync, 2, property)
}

// sumRequest returns the request for the sum over all flows of a number:
// ofp_aggregate_stats_request of OpenFlow 1.4, 7.3.5.3, after the fixed part of a multipart
// message. The xid of the reply is the number.
func sumRequest(number uint8) []byte {
	const (
		anyTable        = 0xff        // OFPTT_ALL
		anyPort         = 0xffff_ffff // OFPP_ANY
		anyGroup        = 0xffff_ffff // OFPG_ANY
		wholeCookie     = 1<<64 - 1   // mask
		oxm, matchesAll = 1, 4        // type of the match, and length of one without fields
	)

	body := make([]byte, multipartLen, 48)
	binary.BigEndian.PutUint16(body, ofAggregate)

	body = append(body, anyTable, 0, 0, 0)
	body = binary.BigEndian.AppendUint32(body, anyPort)
	body = binary.BigEndian.AppendUint32(body, anyGroup)
	body = append(body, 0, 0, 0, 0)
	body = binary.BigEndian.AppendUint64(body, numbered(number))
	body = binary.BigEndian.AppendUint64(body, wholeCookie)
	body = binary.BigEndian.AppendUint16(body, oxm)
	body = binary.BigEndian.AppendUint16(body, matchesAll)
	body = append(body, 0, 0, 0, 0)

	return ofMessage(ofMultipartRequest, uint32(number), body)
}

// ReadFlowSums returns the sums, by number (FlowSync), of the counts of the flows on the bridge,
// each since it was written. Unlike FlowCounts.Read it needs no Run, and leaves out deleted flows.
func ReadFlowSums(
	ctx context.Context,
	rundir, bridge string,
	flowNumbers []uint8,
) ([numberCount]FlowCount, error) {
	c := NewFlowCounts(rundir, bridge, flowNumbers)

	var l ledger
	l.begin(len(flowNumbers))
	err := c.exchange(ctx, "counts of flows", c.sumRequests(), l.take)

	return l.replies, err
}

// exchange sends requests over a new connection, and calls take for each received message until
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
