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

// zeroSNAT is the capability of a datapath by which ovn-controller lets switches
// commit connections with a NAT that changes nothing.
const zeroSNAT = "ct_zero_snat"

// AvoidNullNAT keeps OVN from giving connections on the userspace datapath a NAT
// that changes nothing: before OVS 3.3 its connection tracker keeps a second entry
// for what is translated, and where nothing is, takes one for the other and aborts
// ("conn->conn_type == CT_CONN_TYPE_DEFAULT"), which ends every connection of the
// node. ovs-vswitchd, whose run directory is rundir, says anew what its datapath can
// do when it starts: repeat it then. One that does not run is left for that time.
//
// What is lost is what OVN wants the NAT for: the second of two connections is
// refused that a pod opens from one port to a Service and directly to its endpoint.
func (c *Client) AvoidNullNAT(ctx context.Context, rundir string) error {
	confuses, err := confusesNullNAT(ctx, rundir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED): // it does not run
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
	ops, err := c.db.Where(d).Mutate(d, mutateMap(&d.Capabilities, d.Capabilities, map[string]string{zeroSNAT: to})...)
	if err == nil {
		err = c.transact(ctx, ops)
	}
	if err != nil {
		return fmt.Errorf("write capability %s of datapath %s: %w", zeroSNAT, DatapathNetdev, err)
	}
	return nil
}

// confusesNullNAT says whether the ovs-vswitchd that runs is older than 3.3. (The
// database has its version only where who starts it writes that.)
func confusesNullNAT(ctx context.Context, rundir string) (bool, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return false, err
	}
	reply, err := unixctl(ctx, path, "version")
	if err != nil {
		return false, fmt.Errorf("ask ovs-vswitchd: %w", err)
	}
	major, minor, err := parseVersion(reply)
	return major < 3 || major == 3 && minor < 3, err
}

// parseVersion reads "ovs-vswitchd (Open vSwitch) 3.1.0", and what others than
// its makers put behind it.
func parseVersion(reply string) (major, minor int, err error) {
	_, version, _ := strings.Cut(reply, "(Open vSwitch) ")
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return 0, 0, fmt.Errorf("read version of ovs-vswitchd: %q", firstLine([]byte(reply)))
	}
	return major, minor, nil
}
