package ovs

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// WaitApplied returns when ovs-vswitchd has applied the current database contents, like ovs-vsctl
// without --no-wait.
func (c *Client) WaitApplied(ctx context.Context) error {
	wake := loop.NewSignal()

	stop := c.Watch(func(table, _ string) bool { return table == vswitch.OpenvSwitchTable }, wake)
	defer stop()

	want, err := c.nextConfig(ctx)
	if err != nil {
		return fmt.Errorf("wait for ovs-vswitchd: %w", err)
	}

	for {
		root, err := c.root(ctx)
		if err != nil {
			return err
		}

		if root.CurCfg >= want {
			return nil
		}

		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("ovs-vswitchd has not applied configuration %d, current is %d: %w",
				want, root.CurCfg, ctx.Err())
		}
	}
}

// nextConfig increments next_cfg, the number of the wanted configuration, and returns it.
// ovs-vswitchd copies it to cur_cfg when it has applied the database contents.
func (c *Client) nextConfig(ctx context.Context) (int, error) {
	root, err := c.root(ctx)
	if err != nil {
		return 0, err
	}

	e := c.edit()
	e.mutate(root, model.Mutation{Field: &root.NextCfg, Mutator: ovsdb.MutateOperationAdd, Value: 1})

	// Other clients increment it too, so the sum is read in the same transaction.
	read := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: vswitch.OpenvSwitchTable, Columns: []string{"next_cfg"}}
	e.add([]ovsdb.Operation{read}, e.err)

	results, err := e.run(ctx)
	if err != nil {
		return 0, err
	}

	rows := results[len(results)-1].Rows
	if len(rows) != 1 {
		return 0, fmt.Errorf("table Open_vSwitch has %d rows", len(rows))
	}

	next, ok := rows[0]["next_cfg"].(float64)
	if !ok {
		return 0, fmt.Errorf("next_cfg is %v", rows[0]["next_cfg"])
	}

	return int(next), nil
}
