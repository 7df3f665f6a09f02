package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// clear removes the leftovers of a lab without processes from the directory, for example after all
// processes of the machine were killed. It keeps a live lab; claim or preflight report that.
func (o Options) clear() error {
	return o.alone(func() error {
		l, err := Open(o.Dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		lives, err := l.lives()
		if err != nil || lives {
			return err
		}
		l.opts.Progress = o.Progress
		l.step("taking down what is left in %s of a lab whose processes have all ended", o.Dir)
		return l.down()
	})
}

// lives reports whether the lab has a process: the one that brings it up, a recorded one, or any in
// its namespaces.
func (l *Lab) lives() (bool, error) {
	if l.state.By.Alive() {
		return true, nil
	}
	recorded, err := l.recorded()
	if err != nil {
		return false, err
	}
	for _, p := range recorded {
		if p.Alive() {
			return true, nil
		}
	}
	names, err := netns.List(l.opts.Name + "-")
	if err != nil {
		return false, err
	}
	inside, err := processesInside(names)
	return len(inside) > 0, err
}

// recorded returns the processes started by the lab, including ended ones.
func (l *Lab) recorded() ([]*process.Process, error) {
	var all []*process.Process
	for _, pattern := range []string{"pid/*.pid", "kube/*.pid"} {
		records, err := filepath.Glob(l.path(pattern))
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			p, err := process.Load(record)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// alone calls f under a lock for all labs beside this directory: no process may claim the directory
// between the check of a lab and its removal.
func (o Options) alone(f func() error) error {
	parent, err := os.Open(filepath.Dir(o.Dir))
	if errors.Is(err, os.ErrNotExist) {
		return f() // nor can it contain a lab
	}
	if err != nil {
		return err
	}
	defer parent.Close() // releases the lock
	if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", parent.Name(), err)
	}
	return f()
}
