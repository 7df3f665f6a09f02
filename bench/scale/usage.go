package main

import "github.com/prometheus/procfs"

// usage is the CPU time of a process since its start, and its memory.
type usage struct {
	CPU     float64 `json:"cpu_s"`
	RSS     float64 `json:"rss_mb"`
	PeakRSS float64 `json:"peak_rss_mb"`
}

// readUsage reads /proc/<pid>; see proc_pid_stat(5) and proc_pid_status(5).
func readUsage(pid int) (usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, err
	}

	stat, err := p.Stat()
	if err != nil {
		return usage{}, err
	}

	status, err := p.NewStatus()
	if err != nil {
		return usage{}, err
	}

	const mb = 1 << 20

	return usage{CPU: stat.CPUTime(), RSS: float64(status.VmRSS) / mb, PeakRSS: float64(status.VmHWM) / mb}, nil
}
