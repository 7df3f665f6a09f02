package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

type stat struct {
	state   byte
	group   int
	threads int
	start   uint64
}

// ended reports whether the process has ended, reaped or not. A process whose first thread has
// ended looks like a zombie while its other threads still hold its files.
func (s stat) ended() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

// readStat parses /proc/<pid>/stat, see proc_pid_stat(5).
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The command name may contain spaces and parentheses; the last parenthesis ends it.
	_, rest, ok := strings.Cut(string(b[max(0, bytes.LastIndexByte(b, ')')):]), ") ")

	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %q", pid, b)
	}

	st := stat{state: f[0][0]}
	if st.group, err = strconv.Atoi(f[2]); err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}

	if st.threads, err = strconv.Atoi(f[17]); err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}

	if st.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}

	return st, nil
}
