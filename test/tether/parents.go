package tether

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runners are programs whose end ends the tests that they run.
var runners = []string{"go", "make"}

// parent is a process that waits for this one, directly or not.
type parent struct {
	pid  int
	name string
}

// awaitParents returns the name of the first parent that ends, or "" at once if no go or make
// command runs this program. It watches the processes up to the outermost of these commands: a
// shell above may end, as after `nohup make test &`.
//
// It does not use PR_SET_PDEATHSIG, which reports the end of the parent's thread. Programs that
// start tests on a thread pool would kill them.
func awaitParents() string {
	parents := watched(ancestors(os.Getppid()))
	if len(parents) == 0 {
		return ""
	}

	var fds []unix.PollFd

	for _, p := range parents {
		fd, err := unix.PidfdOpen(p.pid, 0)
		if errors.Is(err, unix.ESRCH) {
			return p.name
		}

		if err != nil {
			return "" // pidfd_open is missing before Linux 5.3: tests then end without this watch
		}

		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}

	if os.Getppid() != parents[0].pid {
		return parents[0].name // it ended before it was watched
	}

	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return ""
		}

		if i := slices.IndexFunc(fds, func(fd unix.PollFd) bool { return fd.Revents != 0 }); i >= 0 {
			return parents[i].name
		}
	}
}

// ancestors returns the process and those above it, without the system's first one.
func ancestors(pid int) (all []parent) {
	for pid > 1 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // see proc_pid_stat(5)

		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if err != nil || open < 0 || end < open {
			return all
		}

		all = append(all, parent{pid, string(b[open+1 : end])})

		fields := strings.Fields(string(b[end+1:]))
		if len(fields) < 2 {
			return all
		}

		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return all
		}
	}

	return all
}

// watched returns the ancestors up to the outermost runner.
func watched(ancestors []parent) []parent {
	for i := len(ancestors) - 1; i >= 0; i-- {
		if slices.Contains(runners, ancestors[i].name) {
			return ancestors[:i+1]
		}
	}

	return nil
}
