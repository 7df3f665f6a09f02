package bpf

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// monotonicNow returns the time on the clock of the programs: bpf_ktime_get_ns(), and
// bpf_ktime_get_coarse_ns(), which is at most a tick behind.
func monotonicNow() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}

	return time.Duration(now.Nano()), nil
}
