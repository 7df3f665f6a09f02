package bpf

import (
	"fmt"
	"time"
)

// Run is the CPU cost of a program on a hook.
type Run struct {
	Program string // name of the hook
	Count   uint64
	Time    time.Duration
}

// Runs returns the cost of the pinned programs while kernel statistics were enabled (sysctl
// kernel.bpf_stats_enabled). Programs without statistics are left out.
func Runs(pinDir string) ([]Run, error) {
	var out []Run

	for _, h := range allHooks {
		p, _, err := attachedProgram(pinDir, h)
		if err != nil {
			return nil, fmt.Errorf("read statistics of %s: %w", h.name, err)
		}

		if p == nil {
			continue
		}

		stats, err := p.Stats()
		p.Close()

		if err != nil {
			return nil, fmt.Errorf("read statistics of %s: %w", h.name, err)
		}

		if stats.RunCount > 0 {
			out = append(out, Run{h.name, stats.RunCount, stats.Runtime})
		}
	}

	return out, nil
}
