package ovs

import (
	"context"
	"errors"
	"fmt"
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

// askSwitch sends a command to ovs-vswitchd, whose run directory is rundir. ovs-appctl would accept
// the pid file only in the pid namespace of the process that holds its lock, and not in a
// container.
func askSwitch(ctx context.Context, rundir string, argv ...string) (string, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return "", err
	}

	return unixctl(ctx, path, argv...)
}

// unixctl sends one command with arguments to the control socket of a daemon.
func unixctl(ctx context.Context, path string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	c, err := DialControl(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()

	return c.Call(ctx, argv[0], argv[1:]...)
}
