package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// usage is what a process has used since it was started.
type usage struct {
	CPU     float64 `json:"cpu_s"`
	RSS     float64 `json:"rss_mb"`
	PeakRSS float64 `json:"peak_rss_mb"`
}

const ticks = 100 // USER_HZ, the same on every architecture that Linux has left

// readUsage reads /proc/<pid>; see proc_pid_stat(5) and proc_pid_status(5).
func readUsage(pid int) (usage, error) {
	var u usage

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}

	_, rest, _ := strings.Cut(string(stat), ") ") // a command's name may have blanks
	fields := strings.Fields(rest)

	const utime, stime = 11, 12
	if len(fields) <= stime {
		return u, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}

	for _, f := range []string{fields[utime], fields[stime]} {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return u, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}

		u.CPU += n / ticks
	}

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}

	for line := range strings.Lines(string(status)) {
		for name, to := range map[string]*float64{"VmRSS:": &u.RSS, "VmHWM:": &u.PeakRSS} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				if err != nil {
					return u, fmt.Errorf("read /proc/%d/status: %w", pid, err)
				}

				*to = kb / 1024
			}
		}
	}

	return u, nil
}

// load is the machine's load average of the last minute.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}

	n, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		return 0
	}

	return n
}
