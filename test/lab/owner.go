package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hold locks the state file, under its first name, until the lab or its owner ends. Unlike a
// process ID, the lock is also valid outside of the owner's PID namespace.
func (l *Lab) hold(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}

	l.held = f

	return nil
}

// owner describes the process that brought the lab up, and returns "" if that has ended.
func (l *Lab) owner() string {
	if p, ok := l.state.By.Locate(); ok {
		return describe(p)
	}

	f, err := os.Open(l.path(StateFile))
	if err != nil {
		return ""
	}
	defer f.Close()

	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return fmt.Sprintf("process %d of another PID namespace", l.state.By.PID)
	}

	return ""
}

// User describes a process that uses the lab of dir, and returns "" if the lab is stale. The owner
// uses a lab, and in labs that are not Owned also every daemon. The error wraps os.ErrNotExist if
// there is no lab.
func User(dir string) (string, error) {
	l, err := load(dir)
	if err != nil {
		return "", err
	}

	return l.user()
}

func (l *Lab) user() (string, error) {
	if l.state.Owned {
		return l.owner(), nil
	}

	return l.anyUser()
}

// NameOf returns the name of the lab of dir.
func NameOf(dir string) (string, error) {
	l, err := load(dir)
	if err != nil {
		return "", err
	}

	return l.opts.Name, nil
}

// RemoveStale takes the lab of dir down, unless a process uses it, which it describes then. No
// process can bring a lab up in dir meanwhile.
func RemoveStale(dir string) (user string, err error) {
	o, err := Options{Dir: dir}.withDefaults()
	if err != nil {
		return "", err
	}

	err = o.alone(func() error {
		l, err := load(dir)
		if err != nil {
			return err
		}

		if user, err = l.user(); user != "" || err != nil {
			return err
		}

		return l.down()
	})

	return user, err
}

// RemoveUnclaimed calls remove if dir has no lab, and describes the lab otherwise. No process can
// bring a lab up in dir meanwhile.
func RemoveUnclaimed(dir string, remove func() error) (user string, err error) {
	err = Options{Dir: dir}.alone(func() error {
		if _, err := os.Stat(filepath.Join(dir, StateFile)); errors.Is(err, os.ErrNotExist) {
			return remove()
		} else if err != nil {
			return err
		}

		user = "the lab in " + dir

		return nil
	})

	return user, err
}
