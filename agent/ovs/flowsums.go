package ovs

import (
	"context"
	"fmt"
	"time"
)

// ReadFlowSums adds up, by number (FlowSync), what the flows that are on the bridge
// now have counted since each was written. Nobody needs to run for it but
// ovs-vswitchd; what flows that have gone had counted is not in it.
func ReadFlowSums(ctx context.Context, rundir, bridge string, of []uint8) ([numbers]FlowCount, error) {
	c := NewFlowCounts(rundir, bridge, of)
	conn, err := c.dial(ctx)
	if err != nil {
		return [numbers]FlowCount{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var l ledger
	if err := c.begin(conn, &l); err != nil {
		return l.round, fmt.Errorf("ask %s for counts of flows: %w", bridge, err)
	}
	for {
		kind, xid, body, err := readOpenFlow(conn)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return l.round, fmt.Errorf("read counts of flows of %s: %w", bridge, err)
		}
		if l.take(ofPacket{kind, xid, body}) {
			return l.round, nil
		}
	}
}
