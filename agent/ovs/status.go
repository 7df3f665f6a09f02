package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
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
