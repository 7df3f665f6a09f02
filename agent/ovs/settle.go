package ovs

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// nextConfig increments the configuration number and returns it.
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

// settleWait limits the wait of a repair for ovs-vswitchd.
const settleWait = 5 * time.Second

// RenewDevice makes ovs-vswitchd reopen the tap device of an internal port of the userspace
// datapath after the device was deleted. ovs-vswitchd does not detect the deletion and keeps
// reading from a dead descriptor. The caller must have checked that the device is missing. If
// ovs-vswitchd has not opened the device yet, RenewDevice changes nothing and returns false. Other
// ports, flows and connections stay.
func (c *Client) RenewDevice(ctx context.Context, rundir, name string) (renewed bool, err error) {
	row, err := c.iface(ctx, name)
	if err != nil || row == nil || row.Ofport == nil || *row.Ofport <= 0 {
		return false, err
	}

	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()

	ports, err := askSwitch(ctx, rundir, "dpctl/show", userspaceDatapath)
	if err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	if !strings.Contains(ports, ": "+name+" (") {
		return false, nil // it has just started: the number in the database is stale
	}

	if _, err := askSwitch(ctx, rundir, "dpctl/del-if", userspaceDatapath, name); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	// ovs-vswitchd adds a port that the datapath lacks when the configuration changes.
	if err := c.WaitApplied(ctx); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}

	return true, nil
}

// userspaceDatapath is the datapath that all bridges of type netdev share.
const userspaceDatapath = "netdev@ovs-netdev"
