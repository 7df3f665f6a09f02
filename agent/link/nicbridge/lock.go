package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A NIC has two locks, which are locked files:
//
//   - The claim is held for a whole move or restoration. It excludes other movers, but not the
//     watchdog.
//   - The lock is held for each step of a move, and by a restoration for all its steps. So the
//     watchdog can take over from a mover that is late: between two steps it takes the lock and
//     changes the snapshot's phase. The mover then finds the phase changed, and stops (mover.do).

// errHeld means that another process holds the lock.
var errHeld = errors.New("held by another process")

// tryLock creates and locks a file until release is called, or returns errHeld. It creates the
// directory if necessary. The kernel releases the lock when the process dies.
func tryLock(path string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}

	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}

	f.Close()

	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		err = errHeld
	}

	return nil, err
}

// lock waits for the lock of the NIC.
func lock(ctx context.Context, dir, nic string) (unlock func(), err error) {
	for {
		unlock, err := tryLock(filepath.Join(dir, "nic-"+nic+".lock"))
		if err == nil {
			return unlock, nil
		}

		if !errors.Is(err, errHeld) {
			return nil, fmt.Errorf("lock %s: %w", nic, err)
		}

		if werr := wait(ctx, 10*time.Millisecond); werr != nil {
			return nil, fmt.Errorf("lock %s: %w: %w", nic, err, werr)
		}
	}
}

// claim waits for the claim of the NIC.
func claim(ctx context.Context, dir, nic string) (release func(), err error) {
	for {
		release, err := tryClaim(dir, nic)
		if err == nil || !errors.Is(err, ErrUnderWay) {
			return release, err
		}

		if werr := wait(ctx, poll); werr != nil {
			return nil, errors.Join(err, werr)
		}
	}
}

// tryClaim is like claim, but returns ErrUnderWay (wrapped) if another process has the claim.
func tryClaim(dir, nic string) (release func(), err error) {
	release, err = tryLock(claimPath(dir, nic))
	if errors.Is(err, errHeld) {
		err = ErrUnderWay
	}

	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", nic, err)
	}

	return release, nil
}

// claimSuffix ends the names of claims.
const claimSuffix = ".mover"

// claimPath returns the path of a NIC's claim.
func claimPath(dir, nic string) string { return filepath.Join(dir, "nic-"+nic+claimSuffix) }

// UnderWay returns the NIC that a live process is moving to a bridge or back, or "". dir is
// Options.Dir. A late mover no longer counts once its watchdog has restored the NIC.
func UnderWay(dir string) (nic string, err error) {
	claims, err := filepath.Glob(claimPath(dir, "*"))
	if err != nil {
		return "", fmt.Errorf("find movers: %w", err)
	}

	for _, path := range claims {
		nic := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "nic-"), claimSuffix)

		s, err := Load(dir, nic)
		if errors.Is(err, fs.ErrNotExist) || err == nil && s.Phase != Moving && s.Phase != Restoring {
			continue
		}

		if err != nil {
			return "", err
		}

		release, err := tryClaim(dir, nic)
		switch {
		case err == nil:
			release()
		case errors.Is(err, ErrUnderWay):
			return nic, nil
		default:
			return "", err
		}
	}

	return "", nil
}

// Undisturbed calls do while no process can start to move the NIC. If a process is moving it,
// Undisturbed returns ErrUnderWay (wrapped) without calling do.
func Undisturbed(dir, nic string, do func() error) error {
	release, err := tryClaim(dir, nic)
	if err != nil {
		return err
	}
	defer release()

	return do()
}

// wait sleeps for d, or returns the cause of ctx if ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
