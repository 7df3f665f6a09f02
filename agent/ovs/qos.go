package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// owner marks a row of a root table as owned by the agent.
const owner = "ovn-ebpf"

// handsOff returns the QoS row that keeps ovs-vswitchd from deleting foreign queueing disciplines
// (type linux-noop), and the operations that create it if it is missing. All ports share it. Two
// concurrent first calls create two rows, which is harmless.
func (c *Client) handsOff(ctx context.Context) (*string, []ovsdb.Operation, error) {
	rows, err := c.ownQoS(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) > 0 {
		return &rows[0].UUID, nil, nil
	}
	row := &vswitch.QoS{UUID: "noop", Type: "linux-noop", ExternalIDs: map[string]string{"owner": owner}}
	ops, err := c.db.Create(row)
	return &row.UUID, ops, err
}

func (c *Client) ownQoS(ctx context.Context) ([]*vswitch.QoS, error) {
	var rows []*vswitch.QoS
	if err := c.db.WhereCache(func(q *vswitch.QoS) bool { return q.ExternalIDs["owner"] == owner }).List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("read QoS: %w", err)
	}
	return rows, nil
}

// RemoveQoS deletes the QoS rows of SyncPort when no port refers to them.
func (c *Client) RemoveQoS(ctx context.Context) error {
	rows, err := c.ownQoS(ctx)
	if err != nil {
		return err
	}
	var ops []ovsdb.Operation
	for _, q := range rows {
		op, err := c.db.Where(q).Delete()
		if err != nil {
			return err
		}
		ops = append(ops, op...)
	}
	if err := c.transact(ctx, ops); err != nil {
		return fmt.Errorf("delete QoS: %w", err)
	}
	return nil
}
