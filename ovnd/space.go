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

// The file system is full if fewer bytes are free. awaitSpace checks it at this interval.
const (
	minFree       = 1 << 20 // bytes
	spaceInterval = time.Second
)

// CheckSpace returns an error if the file system of the databases is full.
func (c Central) CheckSpace() error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(c.Dir, &s); err != nil {
		return fmt.Errorf("check space in %s: %w", c.Dir, err)
	}

	// File systems without a limit report no blocks.
	lacksBytes := s.Blocks > 0 && s.Bavail*uint64(s.Bsize) < minFree //nolint:gosec // a block's size is positive
	lacksInodes := s.Files > 0 && s.Ffree == 0

	if lacksBytes || lacksInodes {
		return fmt.Errorf("no space left in %s for OVN's databases: free space there", c.Dir)
	}

	return nil
}

// awaitSpace waits until the databases can be written. A member of a raft cluster whose write fails
// once refuses all later ones.
func (c Central) awaitSpace(ctx context.Context, log *slog.Logger) error {
	for isLogged := false; ; isLogged = true {
		err := c.CheckSpace()
		if err == nil {
			return nil
		}

		if !isLogged {
			log.Warn("waiting for space", "error", err)
		}

		if !loop.Pause(ctx, spaceInterval) {
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// CheckMember returns an error if this member's server of the database refuses all changes, because
// it could not write its file, for example on a full disk. Then it must be restarted. A server that
// does not answer is no error: it may be starting.
func (c Central) CheckMember(ctx context.Context, d Database) error {
	out, err := run(ctx, "ovn-appctl", "--timeout=3", "-t", c.path(d, ".ctl"), "cluster/status", d.Name)
	if err == nil && bytes.Contains(out, []byte("\nStatus: failed\n")) {
		return fmt.Errorf("%s has failed to write its file: its server must be restarted", d.Name)
	}

	return nil
}
