package link

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// InNetns runs do on a thread that is in the network namespace at path. do
// must not start goroutines that need it.
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

// onThread runs do on a thread that ends with it, so that it never has to be
// brought back. It is not the main thread: that one cannot end, and is what
// /proc/<pid> shows of the process.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		if unix.Gettid() == unix.Getpid() {
			result <- onThread(do) // this one is held, so the next is another
			runtime.UnlockOSThread()
			return
		}
		result <- do()
	}()
	return <-result
}
