// Package scratch makes the temporary directories of tests and tools. Their names begin with
// "ovn-ebpf." and their owners hold a lock on them, so that test/sweep can remove those whose owner
// was killed. Scripts do the same with mktemp and flock.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

const prefix = "ovn-ebpf."

// Dir is a temporary directory that belongs to this process.
type Dir struct {
	Path string
	lock *os.File // the directory, with a lock that the kernel releases when the process ends
}

// Make creates a directory in os.TempDir for the named purpose: lower case letters.
func Make(purpose string) (*Dir, error) { return MakeIn("", purpose) }

// MakeIn creates a directory in dir, which may also be a cgroup.
func MakeIn(dir, purpose string) (*Dir, error) {
	for {
		path, err := os.MkdirTemp(dir, prefix+purpose+".")
		if err != nil {
			return nil, fmt.Errorf("make scratch directory: %w", err)
		}

		lock, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed as stale before it was locked
		}

		if err != nil {
			return nil, fmt.Errorf("make scratch directory: %w", err)
		}

		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock scratch directory %s: %w", path, err), lock.Close())
		}

		if _, err := os.Stat(path); err == nil {
			return &Dir{path, lock}, nil
		}

		lock.Close()
	}
}

// Remove removes the directory with its content.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	d.lock.Close() // the lock must not outlive the content

	return err
}

// List returns the scratch directories in dir whose names have the form of Make's.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list scratch directories: %w", err)
	}

	var paths []string

	for _, e := range entries {
		if e.IsDir() && made(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}

	return paths, nil
}

// made reports whether the name is ovn-ebpf.<purpose>.<random letters and digits>.
func made(name string) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	purpose, random, two := strings.Cut(rest, ".")

	return ours && two && purpose != "" && random != "" &&
		strings.Trim(purpose, "abcdefghijklmnopqrstuvwxyz") == "" && strings.IndexFunc(random, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) < 0
}

// ErrInUse is returned for a directory whose owner runs.
var ErrInUse = errors.New("its owner runs")

// IfStale calls f if no process owns the directory of Make, and returns ErrInUse otherwise. No
// process can own the directory before f returns.
func IfStale(path string, f func() error) error {
	lock, err := os.Open(path)
	if err != nil {
		return err
	}
	defer lock.Close()

	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}

	return f()
}

// Owner describes the process that owns the directory, from /proc/locks, see proc_locks(5).
func Owner(path string) string {
	const unknown = "its owner"

	var st unix.Stat_t

	locks, err := os.ReadFile("/proc/locks")
	if err := errors.Join(err, unix.Stat(path, &st)); err != nil {
		return unknown
	}

	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE 1234 fe:01:5678 0 EOF
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[5] == file && f[4] != "0" {
			return "process " + f[4]
		}
	}

	return unknown // in another PID namespace
}
