package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// ErrRunning is returned (wrapped) if a living process holds the pid file.
var ErrRunning = errors.New("it runs already")

// PIDFile is a pid file of this process. It is locked, as those of OVS, while the process lives.
type PIDFile struct {
	path   string
	file   *atomicfile.File
	remove sync.Once
}

// WritePIDFile writes the process ID to path. It refuses a file locked by a living process, unless
// overwrite is set. An unlocked file belongs to a dead process.
func WritePIDFile(path string, overwrite bool) (*PIDFile, error) {
	if pid, err := Running(path); err != nil {
		return nil, err
	} else if pid != 0 && !overwrite {
		return nil, fmt.Errorf("%w: process %d has the pid file %s", ErrRunning, pid, path)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("write pid file: %w", err)
	}

	// The file is locked and written under another name first. So a reader of path always finds a
	// process ID, and the lock of a process that lives.
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write pid file: %w", err)
	}

	p := &PIDFile{path: path, file: f}
	if err := p.lockAndCommit(); err != nil {
		f.Abort()
		return nil, fmt.Errorf("write pid file %s: %w", path, err)
	}

	return p, nil
}

func (p *PIDFile) lockAndCommit() error {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(p.file.Fd(), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("lock: %w", err)
	}

	if _, err := fmt.Fprintln(p.file, os.Getpid()); err != nil {
		return err
	}

	return p.file.Commit()
}

// Remove removes the file, if it still belongs to this process. A nil PIDFile has no file.
func (p *PIDFile) Remove() {
	if p == nil {
		return
	}

	p.remove.Do(func() {
		own, errOwn := p.file.Stat()
		current, errCurrent := os.Stat(p.path)

		if errOwn == nil && errCurrent == nil && os.SameFile(own, current) {
			_ = os.Remove(p.path) // a stale file is harmless
		}

		p.file.Close()
	})
}

// Running returns the ID of the living process that has locked the pid file path, or 0.
func Running(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}

	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}

	defer f.Close()

	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("pid file %s: ask for its lock: %w", path, err)
	}

	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}

	if lock.Pid <= 0 {
		return 0, fmt.Errorf("%w in another pid namespace, as in a container, and has the pid file %s",
			ErrRunning, path)
	}

	return int(lock.Pid), nil
}
