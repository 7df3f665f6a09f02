package ovs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// zeroSNAT is the datapath capability that makes ovn-controller let switches commit connections
// with an all-zero NAT, which changes nothing.
const zeroSNAT = "ct_zero_snat"

// AvoidNullNAT prevents OVN from using an all-zero NAT on the userspace datapath, by the capability
// ct_zero_snat of the database. Before OVS 3.3
// its connection tracker keeps a second entry for a connection with NAT. If nothing is translated,
// both entries match the same packets. If only the second one is left to match, ovs-vswitchd aborts
// ("conn->conn_type == CT_CONN_TYPE_DEFAULT"), which ends every connection of the node.
// ovs-vswitchd resets the capabilities when it starts, so AvoidNullNAT must be repeated then. If
// ovs-vswitchd is down, it does nothing. rundir is its run directory.
//
// Without all-zero NAT, one case fails: if a pod uses one source port for a Service and directly
// for its endpoint, the second connection is refused.
func (c *Client) AvoidNullNAT(ctx context.Context, rundir string) error {
	confuses, err := ConfusesNullNAT(ctx, rundir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED): // ovs-vswitchd is down
		return nil
	case err != nil:
		return err
	case !confuses:
		return nil
	}

	return c.writeZeroSNAT(ctx, "true", "false")
}

// AllowNullNAT undoes AvoidNullNAT.
func (c *Client) AllowNullNAT(ctx context.Context) error {
	return c.writeZeroSNAT(ctx, "false", "true")
}

// writeZeroSNAT changes the capability from one value to another. With a third value, or without
// the userspace datapath, it changes nothing.
func (c *Client) writeZeroSNAT(ctx context.Context, from, to string) error {
	root, err := c.root(ctx)
	if err != nil {
		return err
	}

	uuid, ok := root.Datapaths[DatapathNetdev]
	if !ok {
		return nil
	}

	d := &vswitch.Datapath{UUID: uuid}
	if err := c.db.Get(ctx, d); err != nil {
		return fmt.Errorf("read datapath %s: %w", DatapathNetdev, err)
	}

	if d.Capabilities[zeroSNAT] != from {
		return nil
	}

	e := c.edit()
	e.setKeys(d, &d.Capabilities, map[string]string{zeroSNAT: to})

	if err := e.commit(ctx); err != nil {
		return fmt.Errorf("write capability %s of datapath %s: %w", zeroSNAT, DatapathNetdev, err)
	}

	return nil
}

// ConfusesNullNAT reports whether the running ovs-vswitchd is older than 3.3, so that an all-zero
// NAT can abort it if it uses the userspace datapath (AvoidNullNAT). It queries ovs-vswitchd,
// because the database does not always contain its version. If ovs-vswitchd is down, the error
// wraps fs.ErrNotExist or unix.ECONNREFUSED.
func ConfusesNullNAT(ctx context.Context, rundir string) (bool, error) {
	reply, err := askSwitch(ctx, rundir, "version")
	if err != nil {
		return false, fmt.Errorf("query ovs-vswitchd: %w", err)
	}

	return VersionConfusesNullNAT(reply)
}

// VersionConfusesNullNAT is ConfusesNullNAT for the text in which ovs-vswitchd prints its version.
func VersionConfusesNullNAT(text string) (bool, error) {
	major, minor, err := parseVersion(text)
	return err == nil && (major < 3 || major == 3 && minor < 3), err
}

// parseVersion reads "ovs-vswitchd (Open vSwitch) 3.1.0", with an optional suffix of distributors.
func parseVersion(reply string) (major, minor int, err error) {
	_, version, _ := strings.Cut(reply, "(Open vSwitch) ")
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return 0, 0, fmt.Errorf("read version of ovs-vswitchd: %q", firstLine([]byte(reply)))
	}

	return major, minor, nil
}
