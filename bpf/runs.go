package bpf

import (
	"fmt"
	"time"
)

// Run is what a program on a hook has cost.
type Run struct {
	Program string // the hook's name
	Count   uint64
	Time    time.Duration
}

// Runs returns what the pinned programs have cost while the kernel counted it
// (sysctl kernel.bpf_stats_enabled); those that it never did are left out.
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
