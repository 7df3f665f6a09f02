package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/mount"
)

// Down removes all parts of the lab: processes, namespaces, the bpffs with all pins, and the
// directory. It kills processes, as all state is discarded. It may be repeated, also after a
// failure or a kill.
func (l *Lab) Down(context.Context) error {
	if err := l.down(); err != nil {
		return fmt.Errorf("take lab down: %w", err)
	}

	l.step("down")

	return nil
}

func (l *Lab) down() error {
	if err := l.killRecorded(); err != nil {
		return err
	}

	names, err := netns.List(l.opts.Name + "-")
	if err != nil {
		return err
	}
	// Unrecorded processes: started in a pod by a test, or just before Up was killed.
	if err := killInside(names); err != nil {
		return err
	}

	for _, name := range names {
		if err := netns.Delete(name); err != nil {
			return err
		}
	}

	if err := mount.RemoveBelow(l.opts.Dir); err != nil {
		return err
	}

	if err := l.removeDir(); err != nil {
		return err
	}

	if l.held != nil {
		l.held.Close()
		l.held = nil
	}

	return nil
}

// removeDir removes the record of the lab last, so that Down can be repeated after a kill.
func (l *Lab) removeDir() error {
	entries, err := os.ReadDir(l.opts.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove directory: %w", err)
	}

	for _, e := range entries {
		if e.Name() == StateFile {
			continue
		}

		if err := os.RemoveAll(l.path(e.Name())); err != nil {
			return fmt.Errorf("remove directory: %w", err)
		}
	}

	if err := os.RemoveAll(l.opts.Dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}

	return nil
}

func (l *Lab) killRecorded() error {
	recorded, err := l.recorded()
	if err != nil {
		return err
	}

	var group errgroup.Group
	for _, p := range recorded {
		group.Go(func() error { return p.Stop(0) })
	}

	return group.Wait()
}

// killInside ends every process in one of the namespaces. It repeats the search until there is
// none, as processes may start others.
func killInside(names []string) error {
	for {
		inside, err := processesInside(names)
		if err != nil || len(inside) == 0 {
			return err
		}

		for _, p := range inside {
			if err := p.Stop(0); err != nil {
				return err
			}
		}
	}
}

func processesInside(names []string) ([]*process.Process, error) {
	ours := map[netns.ID]bool{}

	for _, name := range names {
		id, err := netns.Identify(netns.Path(name))
		if err != nil {
			return nil, err
		}

		ours[id] = true
	}
	// Whatever is mounted there, exclude the caller's own namespace.
	own, err := netns.Identify("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}

	delete(ours, own)
	// A name without its mount is a plain file, which matches no process.
	var inside []*process.Process

	for _, pid := range pids() {
		id, err := netns.Identify(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil || !ours[id] || pid == os.Getpid() {
			continue // ended meanwhile, or not part of the lab
		}

		if p, err := process.Find(pid); err == nil && p.Alive() {
			inside = append(inside, p)
		}
	}

	return inside, nil
}

func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}

	var pids []int

	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}

	return pids
}

// mounts mounts the lab's own bpffs, so that unmounting it removes every pin, and cgroup v2, which
// may not be mounted on the machine.
func (l *Lab) mounts() error {
	for _, m := range []struct{ name, kind string }{{"bpf", "bpf"}, {cgroupDir, "cgroup2"}} {
		dir := l.path(m.name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}

		if err := unix.Mount(m.kind, dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, dir, err)
		}
	}

	return nil
}
