package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// clear removes a stale lab from the directory, for example after all processes of the machine were
// killed. It keeps a lab in use; claim or preflight report that.
func (o Options) clear() error {
	return o.alone(func() error {
		l, err := Open(o.Dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}

		if err != nil {
			return err
		}

		user, err := l.user()
		if err != nil || user != "" {
			return err
		}

		l.opts.Progress = o.Progress
		l.step("taking down the stale lab in %s", o.Dir)

		return l.down()
	})
}

// anyUser describes a process of the lab: its owner, a recorded one, or any in its namespaces.
func (l *Lab) anyUser() (string, error) {
	if user := l.owner(); user != "" {
		return user, nil
	}

	recorded, err := l.recorded()
	if err != nil {
		return "", err
	}

	for _, p := range recorded {
		if p.Alive() {
			return describe(p), nil
		}
	}

	names, err := netns.List(l.opts.Name + "-")
	if err != nil {
		return "", err
	}

	return UserOfNetns(names...)
}

// UserOfNetns describes a process in one of the named namespaces, and returns "" if they have none.
func UserOfNetns(names ...string) (string, error) {
	inside, err := processesInside(names)
	if len(inside) == 0 || err != nil {
		return "", err
	}

	return describe(inside[0]), nil
}

// describe returns the process as text, like "process 12 (ovsdb-server)".
func describe(p *process.Process) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)) // it may have ended
	return fmt.Sprintf("process %d (%s)", p.PID, strings.TrimSpace(string(name)))
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
