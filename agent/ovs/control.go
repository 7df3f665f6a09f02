package ovs

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Control is a connection to the control socket of ovs-vswitchd or another daemon of OVS or OVN, as
// used by ovs-appctl. The protocol is JSON-RPC: a request names a command and its arguments, and
// the result is the command's output. A Control is not safe for concurrent use.
type Control struct {
	conn net.Conn
	in   *json.Decoder
	id   int
}

// DialControl connects to the socket at path.
func DialControl(ctx context.Context, path string) (*Control, error) {
	var d net.Dialer

	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}

	return &Control{conn: conn, in: json.NewDecoder(conn)}, nil
}

// DialSwitch connects to ovs-vswitchd through run directory rundir.
func DialSwitch(ctx context.Context, rundir string) (*Control, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return nil, err
	}

	return DialControl(ctx, path)
}

// Close closes the connection.
func (c *Control) Close() error { return c.conn.Close() }

// Call runs one command and returns its output. After a connection error, including the end of ctx,
// the connection is unusable.
func (c *Control) Call(ctx context.Context, method string, params ...string) (string, error) {
	if err := ctx.Err(); err != nil { // otherwise the reply could arrive before AfterFunc runs
		return "", fmt.Errorf("call %s: %w", method, err)
	}
	// A deadline in the past ends the reads and writes. The returned function cancels that.
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()

	c.id++

	if params == nil {
		params = []string{} // as JSON [], because OVS rejects null
	}

	request, err := json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	if err != nil {
		return "", err
	}

	if _, err := c.conn.Write(request); err != nil {
		return "", fmt.Errorf("call %s: %w", method, err)
	}

	var reply struct {
		ID     int
		Result string
		Error  any
	}
	if err := c.in.Decode(&reply); err != nil {
		return "", fmt.Errorf("call %s: read reply: %w", method, err)
	}

	if reply.ID != c.id {
		return "", fmt.Errorf("call %s: reply to %d instead of %d", method, reply.ID, c.id)
	}

	if reply.Error != nil {
		return "", fmt.Errorf("call %s: %v", method, reply.Error)
	}

	return reply.Result, nil
}

// controlSocket returns the path of a daemon's control socket, which contains the daemon's process
// ID. The daemon may be dead.
func controlSocket(rundir, daemon string) (string, error) {
	pid, err := os.ReadFile(filepath.Join(rundir, daemon+".pid"))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", daemon, err)
	}

	return filepath.Join(rundir, daemon+"."+strings.TrimSpace(string(pid))+".ctl"), nil
}

// askSwitch sends one command to ovs-vswitchd, whose run directory is rundir, over a connection of
// its own. ovs-appctl would accept the pid file only in the pid namespace of the process that holds
// its lock, and so not in a container.
func askSwitch(ctx context.Context, rundir string, argv ...string) (string, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return "", err
	}

	return unixctl(ctx, path, argv...)
}

// commandTimeout limits one command of unixctl.
const commandTimeout = 10 * time.Second

// unixctl sends one command, argv[0], with arguments to the control socket at path.
func unixctl(ctx context.Context, path string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()

	c, err := DialControl(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()

	return c.Call(ctx, argv[0], argv[1:]...)
}
