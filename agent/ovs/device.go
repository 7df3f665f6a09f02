package ovs

import (
	"context"
	"fmt"
	"strings"
	"time"
)

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
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	ports, err := unixctl(ctx, path, "dpctl/show", userspaceDatapath)
	if err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	if !strings.Contains(ports, ": "+name+" (") {
		return false, nil // it has just started: the number in the database is stale
	}
	if _, err := unixctl(ctx, path, "dpctl/del-if", userspaceDatapath, name); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	// ovs-vswitchd adds a port that the datapath lacks when the configuration changes.
	if err := c.Settle(ctx); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	return true, nil
}

// userspaceDatapath is the datapath that all bridges of type netdev share.
const userspaceDatapath = "netdev@ovs-netdev"
