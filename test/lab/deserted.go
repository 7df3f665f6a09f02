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

// clear takes away what is left of a lab in the directory that has no process any more:
// of one whose machine's processes were all killed, say, with nobody to take it down. One
// that lives is let be; claim or preflight say so.
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

// lives tells whether the lab has a process: the one that brings it up, one that was
// recorded, or any in its namespaces.
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

// recorded are the processes that the lab has started, also those that have ended.
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

// alone calls f while no other process does so for a directory beside this one: between
// looking at a lab and taking it down nobody claims the directory.
func (o Options) alone(f func() error) error {
	parent, err := os.Open(filepath.Dir(o.Dir))
	if errors.Is(err, os.ErrNotExist) {
		return f() // nor is there anything in it
	}
	if err != nil {
		return err
	}
	defer parent.Close() // and the lock with it
	if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", parent.Name(), err)
	}
	return f()
}
