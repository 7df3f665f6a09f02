package link

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// InNetns runs do on a thread that is in the network namespace at path. The
// thread ends with it if it cannot be brought back.
func InNetns(path string, do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open own network namespace: %w", err)
			return
		}
		defer home.Close()
		target, err := netns.GetFromPath(path)
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open network namespace %s: %w", path, err)
			return
		}
		defer target.Close()
		if err := netns.Set(target); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		err = do()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread() // else the runtime ends the thread with the goroutine
		}
		result <- err
	}()
	return <-result
}
