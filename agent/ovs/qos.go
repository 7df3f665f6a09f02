package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// owner is the value of external_ids:owner in QoS rows of the agent.
const owner = "ovn-ebpf"

// noopQoS returns the UUID of the QoS row of type linux-noop, and creates the row if it is missing.
// With this row, ovs-vswitchd leaves the queueing discipline of a port's device alone. All ports
// share it. Two concurrent first calls create two rows, which is harmless.
func (e *edit) noopQoS(ctx context.Context) (*string, error) {
	have, err := e.c.ownQoS(ctx)
	if err != nil {
		return nil, err
	}

	if len(have) > 0 {
		return &have[0].UUID, nil
	}

	row := &vswitch.QoS{UUID: "noop", Type: "linux-noop", ExternalIDs: map[string]string{"owner": owner}}
	e.create(row)

	return &row.UUID, nil
}

// ownQoS returns the QoS rows that noopQoS has created.
func (c *Client) ownQoS(ctx context.Context) ([]*vswitch.QoS, error) {
	return rows(ctx, c, "QoS", func(q *vswitch.QoS) bool { return q.ExternalIDs["owner"] == owner })
}

// RemoveQoS deletes the QoS rows that SyncPort has created for Port.OwnQueue. The ports must be
// removed first: the server rejects the transaction while a port refers to a row.
func (c *Client) RemoveQoS(ctx context.Context) error {
	have, err := c.ownQoS(ctx)
	if err != nil {
		return err
	}

	e := c.edit()
	for _, q := range have {
		e.add(c.db.Where(q).Delete())
	}

	if err := e.commit(ctx); err != nil {
		return fmt.Errorf("delete QoS: %w", err)
	}

	return nil
}
