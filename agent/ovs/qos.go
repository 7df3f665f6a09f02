package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// owner marks a row of a root table as owned by the agent.
const owner = "ovn-ebpf"

// handsOff returns the QoS row that keeps ovs-vswitchd from deleting foreign queueing disciplines
// (type linux-noop), and creates it if it is missing. All ports share it. Two concurrent first
// calls create two rows, which is harmless.
func (e *edit) handsOff(ctx context.Context) (*string, error) {
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

// ownQoS returns the QoS rows of handsOff.
func (c *Client) ownQoS(ctx context.Context) ([]*vswitch.QoS, error) {
	return rows(ctx, c, "QoS", func(q *vswitch.QoS) bool { return q.ExternalIDs["owner"] == owner })
}

// RemoveQoS deletes the QoS rows of SyncPort when no port refers to them.
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
