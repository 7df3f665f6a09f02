package ovs

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// settleWait bounds how long a repair waits for ovs-vswitchd.
const settleWait = 5 * time.Second

// RenewDevice makes ovs-vswitchd open the tap of an internal port of the userspace datapath
// again, whose device somebody has deleted: it does not notice by itself, and reads from a dead
// descriptor for ever. The caller has seen that there is no device. It returns false when
// ovs-vswitchd has not opened one yet, and changes nothing then. Other ports, flows and
// connections stay.
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
		return false, nil // it has just started: the number in the database is of before
	}
	if _, err := unixctl(ctx, path, "dpctl/del-if", userspaceDatapath, name); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	// A port that the datapath lacks is made when the configuration changes.
	if err := c.Settle(ctx); err != nil {
		return false, fmt.Errorf("open device %s again: %w", name, err)
	}
	return true, nil
}

// userspaceDatapath is the one that all bridges of type netdev share.
const userspaceDatapath = "netdev@ovs-netdev"
