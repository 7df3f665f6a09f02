package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is the directory where named namespaces are bind-mounted.
const Dir = "/run/netns"

// Path returns the file of the namespace.
func Path(name string) string { return filepath.Join(Dir, name) }

// Create creates an empty namespace called name, with its loopback down. It fails if the name is in
// use.
func Create(name string) error {
	if err := shareDir(); err != nil {
		return fmt.Errorf("create netns %s: %w", name, err)
	}

	f, err := os.OpenFile(Path(name), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("create netns %s: %w", name, err)
	}

	f.Close()

	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}

		return unix.Mount("/proc/thread-self/ns/net", Path(name), "", unix.MS_BIND, "")
	})
	if err != nil {
		os.Remove(Path(name))
		return fmt.Errorf("create netns %s: %w", name, err)
	}

	return nil
}

// shareDir makes Dir a shared mount, as `ip netns add` does: later namespaces are then visible in
// other mount namespaces, and removed there.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}

	err := unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// EINVAL: not a mount point yet.
	if err := unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}

	return unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
}

// Hold keeps Unheld from running until release is called.
func Hold() (release func(), err error) { return lock(unix.LOCK_SH) }

// ErrHeld is returned by Unheld while a caller of Hold creates namespaces.
var ErrHeld = errors.New("namespaces are being created")

// Unheld calls f while no caller of Hold creates namespaces.
func Unheld(f func() error) error {
	release, err := lock(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}

	if err != nil {
		return err
	}

	defer release()

	return f()
}

func lock(how int) (release func(), err error) {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return nil, err
	}

	dir, err := os.Open(Dir)
	if err != nil {
		return nil, err
	}

	for {
		err = unix.Flock(int(dir.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}

	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", Dir, err)
	}

	return func() { dir.Close() }, nil
}

// Delete removes the name, if it exists. The namespace itself lives until its last process ends.
func Delete(name string) error {
	err := unix.Unmount(Path(name), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount netns %s: %w", name, err)
	}

	if err := os.Remove(Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete netns %s: %w", name, err)
	}

	return nil
}

// List returns the names that begin with prefix, sorted.
func List(prefix string) ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("list netns: %w", err)
	}

	var names []string

	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}

	return names, nil
}

// Do runs f on a thread inside the namespace. Goroutines started by f are outside of it; sockets
// that f opens stay inside. The empty name is the caller's own namespace.
func Do(name string, f func() error) error {
	if name == "" {
		return f()
	}

	target, err := os.Open(Path(name))
	if err != nil {
		return fmt.Errorf("enter netns %s: %w", name, err)
	}
	defer target.Close()

	return onThread(func() error {
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter netns %s: %w", name, err)
		}

		return f()
	})
}

// onThread runs f on a thread that ends with it, so f may leave it in any namespace. It never uses
// the main thread, which cannot end, would hold the namespace forever, and is shown in
// /proc/<pid>/ns.
func onThread(f func() error) error {
	done := make(chan error)

	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends

		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}

		err := onThread(f) // on another one, since this is taken

		runtime.UnlockOSThread()

		done <- err
	}()

	return <-done
}

// Dialer returns a dial function for rest.Config and http.Transport with sockets inside the
// namespace. Addresses must be literal.
func Dialer(name string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = Do(name, func() (err error) {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})

		return c, err
	}
}

// ID identifies the namespace behind a file such as Path(name) or
// /proc/<pid>/ns/net: equal IDs are the same namespace.
type ID struct{ Dev, Ino uint64 }

// Identify returns the ID of the namespace at path.
func Identify(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, fmt.Errorf("stat netns %s: %w", path, err)
	}

	return ID{st.Dev, st.Ino}, nil
}
