package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// owner marks a row of a root table as ours.
const owner = "ovn-ebpf"

// handsOff returns the QoS row that keeps ovs-vswitchd from deleting queueing
// disciplines it has not made (type linux-noop), with what creates it where it
// is not there yet. All ports share it. Two that come first at the same moment
// make two, which is as good.
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

// RemoveQoS deletes what SyncPort has left of QoS once no port is there that
// refers to it.
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
