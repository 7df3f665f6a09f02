package link

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// InNetns runs do on a thread in the network namespace at path. do must not start goroutines that
// need the namespace.
func InNetns(path string, do func() error) error {
	target, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer target.Close()

	return onThread(func() error {
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}

		return do()
	})
}

// CheckEnterNetns returns an error if the process lacks a capability for setting up pods'
// interfaces.
func CheckEnterNetns() error {
	err := InNetns("/proc/self/ns/net", func() error { return nil })
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("set up pods' interfaces: missing CAP_SYS_ADMIN: %w", err)
	}

	return err
}

// CheckNetns returns an error unless there is a network namespace at path. The file of a removed
// namespace may still exist.
func CheckNetns(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("find network namespace %s: %w", path, err)
	}

	if fs.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("find network namespace %s: the file is not a namespace", path)
	}

	return nil
}

// onThread runs do on a thread that ends afterwards, so its namespace need not be restored. It
// never uses the main thread: that one cannot end, and /proc/<pid> shows its namespace as the
// process'.
func onThread(do func() error) error {
	result := make(chan error, 1)

	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread

		if unix.Gettid() == unix.Getpid() {
			result <- onThread(do) // this thread is locked, so the next is another

			runtime.UnlockOSThread()

			return
		}

		result <- do()
	}()

	return <-result
}
