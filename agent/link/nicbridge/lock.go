package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock is held by whoever changes a NIC, for one step or for a whole
// restoration. The kernel frees it when its holder dies.
func lock(ctx context.Context, dir, nic string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", nic, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "nic-"+nic+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", nic, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", nic, err)
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: held by another process: %w", nic, err)
		}
	}
}

// wait returns the context's error when it ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
