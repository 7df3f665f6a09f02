package ovnd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	minFree   = 1 << 20 // bytes
	spaceLook = time.Second
)

// CheckSpace returns an error if the file system of the databases is full.
func (c Central) CheckSpace() error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(c.Dir, &s); err != nil {
		return fmt.Errorf("check space in %s: %w", c.Dir, err)
	}

	// File systems without a limit report no blocks.
	noBytes := s.Blocks > 0 && s.Bavail*uint64(s.Bsize) < minFree //nolint:gosec // a block's size is positive
	noInodes := s.Files > 0 && s.Ffree == 0

	if noBytes || noInodes {
		return fmt.Errorf("no space left in %s for OVN's databases: free space there", c.Dir)
	}

	return nil
}

// awaitSpace waits until the databases can be written. A member of a raft cluster whose write fails
// once refuses all later ones.
func (c Central) awaitSpace(ctx context.Context, log *slog.Logger) error {
	for said := false; ; said = true {
		err := c.CheckSpace()
		if err == nil {
			return nil
		}

		if !said {
			log.Warn("waiting for space", "error", err)
		}

		if !loop.Pause(ctx, spaceLook) {
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// CheckMember returns an error if this member's server of the database refuses all changes because
// a write has failed, as on a full disk. Only a restart ends that. A server that does not answer is
// no error: it may be starting.
func (c Central) CheckMember(ctx context.Context, d Database) error {
	out, err := run(ctx, "ovn-appctl", "--timeout=3", "-t", c.path(d, ".ctl"), "cluster/status", d.Name)
	if err == nil && bytes.Contains(out, []byte("\nStatus: failed\n")) {
		return fmt.Errorf("%s has failed to write its file: its server must be restarted", d.Name)
	}

	return nil
}
