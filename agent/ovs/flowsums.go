package ovs

import (
	"context"
	"fmt"
	"time"
)

// ReadFlowSums sums, by number (FlowSync), the counts of the flows on the bridge, each since it was
// written. It needs only ovs-vswitchd. Counts of deleted flows are not included.
func ReadFlowSums(ctx context.Context, rundir, bridge string, of []uint8) ([numbers]FlowCount, error) {
	c := NewFlowCounts(rundir, bridge, of)
	var l ledger
	l.begin(len(of))
	err := c.once(ctx, "counts of flows", c.askSums(), l.take)
	return l.round, err
}

// once sends a request over its own connection and calls take for each message until take returns
// true. what is used in errors.
func (c *FlowCounts) once(ctx context.Context, what string, question []byte, take func(ofPacket) (all bool)) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(question); err != nil {
		return fmt.Errorf("ask %s for %s: %w", c.Bridge, what, err)
	}
	for {
		kind, xid, body, err := readOpenFlow(conn)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", what, c.Bridge, err)
		}
		if take(ofPacket{kind, xid, body}) {
			return nil
		}
	}
}
