package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ControllerConnected reports whether the node's ovn-controller is connected to its southbound
// database. It queries the control socket in rundir, which is named after the process. If
// ovn-controller is down, the result is false. ovn-nb-cfg of br-int is no substitute: it survives
// ovn-controller, and changes only when a client requests a new number.
func ControllerConnected(ctx context.Context, rundir string) (bool, error) {
	path, err := controlSocket(rundir, "ovn-controller")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	reply, err := unixctl(ctx, path, "connection-status")
	if err != nil {
		return false, fmt.Errorf("query ovn-controller: %w", err)
	}
	return strings.TrimSpace(reply) == "connected", nil
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

// unixctl sends a command with arguments to a daemon of OVS or OVN: JSON-RPC over a unix socket
// (lib/unixctl.c).
func unixctl(ctx context.Context, path string, argv ...string) (string, error) {
	command := argv[0]
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := map[string]any{"id": 0, "method": command, "params": append([]string{}, argv[1:]...)}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return "", fmt.Errorf("send %s to %s: %w", command, path, err)
	}
	var reply struct {
		Result *string `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return "", fmt.Errorf("read reply of %s to %s: %w", path, command, err)
	}
	if reply.Error != nil {
		return "", fmt.Errorf("%s of %s: %s", command, path, *reply.Error)
	}
	if reply.Result == nil {
		return "", fmt.Errorf("%s of %s: no result", command, path)
	}
	return *reply.Result, nil
}
