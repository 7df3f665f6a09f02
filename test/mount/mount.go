// Package mount finds and removes the mounts below a directory.
package mount

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Below returns the mount points below dir in the order they were mounted, see
// proc_pid_mountinfo(5).
func Below(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}

	var mounts []string

	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			mounts = append(mounts, f[4])
		}
	}

	return mounts, nil
}

// RemoveBelow unmounts everything below dir, innermost first.
func RemoveBelow(dir string) error {
	mounts, err := Below(dir)
	if err != nil {
		return err
	}

	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", mounts[i], err)
		}
	}

	return nil
}
